"""A site whose robots.txt is unreachable (503): a setting decides what happens to its pages.

Run it: python3 example_project/run.py unreachable
Here they are dropped at once. The alternatives:
    python3 example_project/run.py unreachable -s REP_UNREACHABLE=hold
is the default: they are held, and given up after REP_HOLD_MAX_WAIT (in s07_holding.py the site
answers before that). And, impolite,
    python3 example_project/run.py unreachable -s REP_UNREACHABLE=allow
"""

import scrapy

from example.sites import address
from scrapy_rep.exceptions import RobotsUnreachable


class UnreachableSpider(scrapy.Spider):
    name = "unreachable"
    custom_settings = {"REP_UNREACHABLE": "drop"}

    async def start(self):
        yield scrapy.Request(address("down"), errback=self.dropped)

    def parse(self, response):
        self.logger.info("Fetched %s, with no rules known", response.url)

    def dropped(self, failure):
        if failure.check(RobotsUnreachable):
            reason, attempts = failure.value.reason, failure.value.attempts
            self.logger.info("Dropped %s: %s", failure.request.url, reason)
            self.logger.info("  after %s attempt(s) at robots.txt", attempts)
