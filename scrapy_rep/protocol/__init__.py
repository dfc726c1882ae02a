"""The Robots Exclusion Protocol as Google applies it: no Scrapy, no I/O, no clock.

>>> from scrapy_rep.protocol import RobotsTxt
>>> robots = RobotsTxt.parse(b"User-agent: *\\nDisallow: /private\\n")
>>> robots.allowed("https://example.com/private/x", "FooBot")
False
>>> str(robots.decide("https://example.com/private/x", "FooBot").rule)
'Disallow: /private'
"""

from scrapy_rep.protocol.matching import Decision, Rule, comparable
from scrapy_rep.protocol.origin import Origin
from scrapy_rep.protocol.outline import AgentLine, CleanParam, Group, RuleLine
from scrapy_rep.protocol.robotstxt import RobotsTxt
from scrapy_rep.protocol.syntax import product_token

__all__ = [
    "AgentLine",
    "CleanParam",
    "Decision",
    "Group",
    "Origin",
    "RobotsTxt",
    "Rule",
    "RuleLine",
    "comparable",
    "product_token",
]
