"""What the package needs of Scrapy, of Twisted and of Python's logging. Nothing here knows robots.txt."""
