"""What each `scrapy` process of the tests would import: see `tests.helpers.process.forked`."""

import lxml.etree  # noqa: F401

import scrapy_rep.addon
import scrapy_rep.commands.robots
import scrapy_rep.middleware
import scrapy_rep.storages  # noqa: F401
