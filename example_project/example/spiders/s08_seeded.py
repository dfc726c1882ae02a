"""A crawl seeded from sitemaps: robots.txt names them, and every page they list is fetched.

Run it: python3 example_project/run.py seeded
robots.txt forbids one sitemap and one page, and one page belongs to another site, which does not
list the sitemap: these are not fetched.
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
        self.logger.info("News of %s: %s", response.meta["rep_sitemap"]["lastmod"], response.url)
