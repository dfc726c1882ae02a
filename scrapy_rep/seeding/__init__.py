"""From discovered sitemaps to page requests (REP.md section 9).

In the order in which an entry passes them:

- ``discovery``: which sitemaps a robots.txt lists, in any crawl; what the spider has to say
- ``seeding``: puts the parts together, and decides which origins seed the crawl
- ``loader``: requests sitemaps, and reads them
- ``selection``: accepts or rejects their entries, and tells the log
- ``verifier``: checks whether other hosts list a sitemap with entries of theirs
- ``spool``: keeps what waits, in a SQLite file
- ``feeder``: hands pages to the scheduler
"""
