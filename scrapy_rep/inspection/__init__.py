"""What a robots.txt says, for people. No Scrapy here."""
