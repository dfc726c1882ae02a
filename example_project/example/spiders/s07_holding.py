"""A site whose robots.txt is down for a few seconds: its requests are held until there is an answer.

Run it: python3 example_project/run.py holding
That needs no code; the signals only show it.
"""

import scrapy

from example.sites import address
from scrapy_rep.signals import request_held, request_released


class HoldingSpider(scrapy.Spider):
    name = "holding"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.held, signal=request_held)
        crawler.signals.connect(spider.released, signal=request_released)
        return spider

    async def start(self):
        for path in ("/", "/news", "/private"):
            yield scrapy.Request(address("recovers") + path, errback=self.dropped)

    def held(self, request, origin):
        self.logger.info("Held %s", request.url)

    def released(self, request, origin):
        self.logger.info("Released %s", request.url)

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)

    def dropped(self, failure):
        self.logger.info("Dropped %s: %s", failure.request.url, failure.value)
