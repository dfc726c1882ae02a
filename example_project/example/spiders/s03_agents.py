"""Who is asking? One page, requested under several names, each with its own group in robots.txt.

A name may be a chain, most specific first: the first one that has a group decides.

Run it: python3 example_project/run.py agents
"""

import scrapy

from example.sites import address


class AgentsSpider(scrapy.Spider):
    name = "agents"
    robotstxt_user_agent = "ExampleBot"  # instead of what USER_AGENT says

    async def start(self):
        yield self.ask({})
        yield self.ask({"rep_user_agent": "OtherBot"})
        yield self.ask({"rep_user_agent": ["ExampleBot-Images", "ExampleBot"]})
        yield self.ask({"rep_user_agent": ["ExampleBot-News", "ExampleBot"]})

    def ask(self, meta):
        url = address("groups") + "/photos"
        return scrapy.Request(url, meta=meta, errback=self.dropped, dont_filter=True)

    def parse(self, response):
        self.logger.info("%s: fetched", self.agent(response.request))

    def dropped(self, failure):
        self.logger.info("%s: %s", self.agent(failure.request), failure.value)

    def agent(self, request):
        return request.meta.get("rep_user_agent", self.robotstxt_user_agent)
