"""An ordinary Scrapy project; what is not here has Scrapy's default."""

BOT_NAME = "example"
SPIDER_MODULES = ["example.spiders"]

# The one line that makes every crawl of this project obey robots.txt as Google does.
ADDONS = {"scrapy_rep.Addon": 300}

# An honest name and an address: site owners can write rules for "ExampleBot", and ask about it.
USER_AGENT = "ExampleBot/1.0 (+http://127.0.0.1/about-this-bot)"

# robots.txt says where a crawler may go; how fast it goes is still yours to choose.
DOWNLOAD_DELAY = 0.05

# A site here is "down for a moment" for less than a second. Keep the default in a real crawl.
REP_RETRY_DELAY = 0.5

# An example ends by itself, whatever happens.
CLOSESPIDER_TIMEOUT = 30
LOG_LEVEL = "INFO"
