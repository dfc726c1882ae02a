"""Page-level rules, in headers and in HTML (REP.md section 10).

>>> from scrapy_rep.protocol.page import PageRules
>>> rules = PageRules.from_headers([b"foobot: noindex, max-snippet:20"], "FooBot")
>>> rules |= PageRules.from_html(b'<meta name="robots" content="nofollow">', "utf-8", "FooBot")
>>> rules.noindex, rules.nofollow, rules.max_snippet
(True, True, 20)
>>> [f"{rule.source}: {rule}" for rule in rules.rules]
['X-Robots-Tag 1: noindex', 'X-Robots-Tag 1: max-snippet: 20', 'meta robots: nofollow']
"""

from scrapy_rep.protocol.page.html import Links, links_of
from scrapy_rep.protocol.page.rules import PageRule, PageRules

__all__ = ["Links", "PageRule", "PageRules", "links_of"]
