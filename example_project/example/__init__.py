"""A Scrapy project that obeys robots.txt through scrapy-rep."""
