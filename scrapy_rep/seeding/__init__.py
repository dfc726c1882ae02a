"""From discovered sitemaps to page requests (REP.md section 9).

In the order in which an entry passes them:

- ``discovery``: finds the sitemaps that a robots.txt lists, in any crawl; checks the
  spider's attributes
- ``links``: finds sitemaps that pages link to, where robots.txt lists none
- ``loader``: requests sitemaps, and reads them
- ``selection``: accepts or rejects the entries of sitemaps, and tells the log
- ``spool``: keeps what waits, in a SQLite file
- ``since``: determines from which date on pages are wanted
- ``seeding``: puts the parts together, decides which origins seed the crawl, and hands
  pages to the scheduler

Words that all of them use: the *source* of a page is the origin whose robots.txt led to
the page's sitemap. A *site* is the pages of one origin that one source names. If the
origin is another host than the source, it needs a *proof*: its robots.txt must list the
sitemap, too. A *row* is the number that a sitemap or a page has in the spool. The
*trail* of a request (``engine.access``) tells when the crawl is done with the request.
"""
