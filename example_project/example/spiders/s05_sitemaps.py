"""Sitemaps that robots.txt announces: a signal for each, and with REP_SITEMAPS a request too.

Run it: python3 example_project/run.py sitemaps
One of the two sitemaps is in a place that robots.txt closes, so it is not fetched.
"""

import scrapy

from example.sites import address
from scrapy_rep.signals import sitemap_discovered


class SitemapsSpider(scrapy.Spider):
    name = "sitemaps"
    start_urls = [address("sitemaps")]
    custom_settings = {"REP_SITEMAPS": True}

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.discovered, signal=sitemap_discovered)
        return spider

    def discovered(self, origin, url):
        self.logger.info("The robots.txt of %s announces %s", origin, url)

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
