"""Pages have rules too: which links not to follow, which pages not to keep.

Run it: python3 example_project/run.py page_rules
The first page marks one of its links, the second says nofollow, the third noindex.
"""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

import scrapy_rep
from example.sites import address


class PageRulesSpider(CrawlSpider):
    name = "page_rules"
    start_urls = [address("plain") + "/club"]
    rules = [
        Rule(
            LinkExtractor(),
            callback="parse_page",
            follow=True,
            process_request=scrapy_rep.follow_links,
        )
    ]
    custom_settings = {"REP_NOINDEX": "drop"}

    def parse_page(self, response):
        rules = scrapy_rep.page_rules(response)
        said = ", ".join(f"{rule} ({rule.where})" for rule in rules.rules)
        self.logger.info("Fetched %s, which says %s", response.url, said or "nothing")
        yield {"url": response.url}
