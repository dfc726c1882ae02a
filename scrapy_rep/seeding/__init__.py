"""From discovered sitemaps to page requests (REP.md section 9).

In the order in which an entry passes them:

- ``discovery``: which sitemaps a robots.txt lists, in any crawl; what the spider has to say
- ``loader``: requests sitemaps, and reads them
- ``selection``: accepts or rejects their entries, those of other hosts once it is known what these
  list; tells the log
- ``spool``: keeps what waits, in a SQLite file
- ``seeding``: puts the parts together, decides which origins seed the crawl, and hands pages to the
  scheduler
"""
