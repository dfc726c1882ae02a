"""Everything at once: all sites of sites.py, and a table of what happened.

Run it: python3 example_project/run.py
"""

import scrapy

from example.report import Report
from example.sites import SITES, address


class AllSitesSpider(scrapy.Spider):
    name = "all_sites"
    custom_settings = {"EXTENSIONS": {Report: 500}}

    async def start(self):
        self.report = self.crawler.get_extension(Report)
        for name in SITES:
            yield scrapy.Request(address(name), errback=self.report.dropped)

    def parse(self, response):
        yield from response.follow_all(css="a", errback=self.report.dropped)
