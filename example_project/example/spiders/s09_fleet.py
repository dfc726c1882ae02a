"""A fleet: several processes with one queue and one robots.txt cache, both on a Redis server.

Run it: python3 example_project/run.py fleet
That starts a Redis server and three of these, and prints who fetched what. scrapy-redis keeps the
queue. robots.txt needs one line, REP_CACHE_STORAGE, and a JOBDIR for each process.
"""

import scrapy
from scrapy.utils.httpobj import urlparse_cached

from example.sites import address

NAMES = [
    "plain",
    "groups",
    "longest",
    "wildcards",
    "typos",
    "missing",
    "slow",
    "recovers",
]
PAGES = ["/", "/1", "/2", "/3", "/4", "/5"]


class FleetSpider(scrapy.Spider):
    name = "fleet"
    custom_settings = {
        # Where the queue is: REDIS_URL, which run.py gives. The cache goes there too.
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "SCHEDULER_PERSIST": True,
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
        "REP_HOLD_MAX_WAIT": 20,
        # So that the first one to start leaves something for the others.
        "CONCURRENT_REQUESTS": 4,
    }

    async def start(self):
        # All processes ask for the same pages; each page goes into the queue once.
        for site in NAMES:
            for page in PAGES:
                url = address(site) + page
                yield scrapy.Request(
                    url, errback=self.dropped, cb_kwargs={"site": site}
                )

    def parse(self, response, site):
        yield result(response.request)
        yield from response.follow_all(
            css="a", errback=self.dropped, cb_kwargs={"site": site}
        )

    def dropped(self, failure):
        yield result(failure.request, dropped=str(failure.value))


def result(request, dropped=""):
    parts = urlparse_cached(request)
    page = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return {"site": request.cb_kwargs["site"], "page": page, "dropped": dropped}
