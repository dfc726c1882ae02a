"""Why was a page dropped? The errback gets the line of robots.txt that decided.

Run it: python3 example_project/run.py which_line
"""

import scrapy

from example.sites import address
from scrapy_rep.exceptions import RobotsDisallowed


class WhichLineSpider(scrapy.Spider):
    name = "which_line"
    start_urls = [address("wildcards")]

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
        yield from response.follow_all(css="a", errback=self.dropped)

    def dropped(self, failure):
        if failure.check(RobotsDisallowed):
            origin, decision = failure.value.origin, failure.value.decision
            self.logger.info("Dropped %s", failure.request.url)
            self.logger.info(
                "  by line %s of %s", decision.rule.line, origin.robots_url
            )
            self.logger.info("  which disallows %s", decision.rule.pattern)
            self.logger.info("  in the group for %s", decision.agent)
