"""From discovered sitemaps to page requests (REP.md section 9).

In the order in which an entry passes them:

- ``discovery``: which sitemaps a robots.txt lists, in any crawl; the spider's
  attributes
- ``links``: sitemaps that pages link to, where robots.txt lists none
- ``loader``: requests sitemaps, and reads them
- ``selection``: accepts or rejects their entries, those of other hosts once it is known
  what these list; tells the log
- ``spool``: keeps what waits, in a SQLite file
- ``since``: from which date on pages are wanted
- ``seeding``: puts the parts together, decides which origins seed the crawl, and hands
  pages to the scheduler

Words that all of them use: the *source* of a page is the origin whose robots.txt led to
the page's sitemap. A *site* is what one source names of one origin. A *row* is the
number that a sitemap or a page has in the spool. The *trail* of a request
(``engine.access``) tells when the crawl is done with it.
"""
