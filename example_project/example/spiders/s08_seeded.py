"""A crawl seeded from sitemaps: robots.txt lists them, and every page that they list is fetched.

Run it: python3 example_project/run.py seeded
Three are not fetched: a sitemap and a page that robots.txt forbids, and a page on another host, whose
robots.txt doesn't list the sitemap.
"""

import scrapy

from example.sites import address


class SeededSpider(scrapy.Spider):
    name = "seeded"
    start_urls = [address("sitemaps")]
    rep_sitemaps = True
    sitemap_rules = [("/news/", "parse_news"), ("", "parse")]

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)

    def parse_news(self, response):
        self.logger.info(
            "News of %s: %s", response.meta["rep_sitemap"]["lastmod"], response.url
        )
