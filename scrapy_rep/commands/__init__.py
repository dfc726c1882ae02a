"""``scrapy robots``: what a robots.txt says, and why."""
