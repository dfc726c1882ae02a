"""Sitemaps that a robots.txt lists: a signal for each.

Run it: python3 example_project/run.py sitemaps
To read them and fetch the pages they list, see s08_seeded.py.
"""

import scrapy

from example.sites import address
from scrapy_rep.signals import sitemap_discovered


class SitemapsSpider(scrapy.Spider):
    name = "sitemaps"
    start_urls = [address("sitemaps")]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.discovered, signal=sitemap_discovered)
        return spider

    def discovered(self, origin, url):
        self.logger.info("The robots.txt of %s lists %s", origin, url)

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
