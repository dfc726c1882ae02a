"""A site whose robots.txt cannot be had (503): what becomes of its pages is a setting.

Run it: python3 example_project/run.py unreachable
Here they are dropped at once. The other choices:
    python3 example_project/run.py unreachable -s REP_UNREACHABLE=defer
which is the default: they are held, and dropped when REP_DEFER_MAX_WAIT is over (see also
s07_deferral.py, where it is not), and, impolite,
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
            self.logger.info("  robots.txt was asked for %s time(s)", attempts)
