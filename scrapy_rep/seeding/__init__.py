"""From discovered sitemaps to page requests (REP.md section 9).

Each module uses those above it alone:

- ``discovery``: which sitemaps a robots.txt lists, in any crawl; what a seeded one adds to the middleware
- ``spool``: what waits, in a SQLite file
- ``spider_options``: the spider's attributes
- ``selection``: which entries are accepted, and what the log says of it
- ``requester``, ``outstanding``, ``feeder``: from the spool to the scheduler
- ``proof``: which entries of other hosts are accepted
- ``intake``: from responses to the spool
- ``seeding``: puts the parts together
"""
