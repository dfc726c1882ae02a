"""The smallest spider: it obeys robots.txt without mentioning it.

Run it: python3 example_project/run.py plain
Look for "robotstxt/forbidden" in the statistics: one of the two links was not followed.
"""

import scrapy

from example.sites import address


class PlainSpider(scrapy.Spider):
    name = "plain"
    start_urls = [address("plain")]

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
        yield from response.follow_all(css="a")
