"""Scrapy, Twisted and logging, as the package needs them. Nothing here knows
robots.txt."""
