"""What a robots.txt says, for people. Imports no Scrapy."""
