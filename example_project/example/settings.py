"""An ordinary Scrapy project; what is not here has Scrapy's default."""

BOT_NAME = "example"
SPIDER_MODULES = ["example.spiders"]

# The one line that makes every crawl of this project obey robots.txt as Google does.
ADDONS = {"scrapy_rep.Addon": 300}

# An honest name and an address: site owners can write rules for "ExampleBot", and ask about it.
USER_AGENT = "ExampleBot/1.0 (+http://127.0.0.1/about-this-bot)"

# robots.txt says where a crawler may go; how fast it goes is still yours to choose.
DOWNLOAD_DELAY = 0.05

# Seconds. A site here is down for a moment, and one is down for ever: nobody wants to watch that
# for long. In a real crawl keep the defaults: robots.txt is asked for again after 5 s or more, and
# pages are held for up to 10 minutes.
REP_RETRY_DELAY = 0.5
REP_HOLD_MAX_WAIT = 5

# An example ends by itself, whatever happens.
CLOSESPIDER_TIMEOUT = 30
LOG_LEVEL = "INFO"
