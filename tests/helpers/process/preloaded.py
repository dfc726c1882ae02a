"""What each `scrapy` process of the tests would import, half a second each time: see
`tests.helpers.process.forked`."""

import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

import lxml.etree  # noqa: F401
import scrapy.cmdline
import scrapy.commands
import twisted.internet.asyncioreactor  # noqa: F401 (it installs none)
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

import scrapy_rep.addon
import scrapy_rep.commands.decide
import scrapy_rep.commands.lookup
import scrapy_rep.commands.robots
import scrapy_rep.middleware
import scrapy_rep.storages  # noqa: F401


def default_classes(value: Any) -> Iterator[str]:
    """The paths of Scrapy's classes in the value of a setting."""
    if isinstance(value, dict):
        for part in (*value, *value.values()):
            yield from default_classes(part)
    elif isinstance(value, str) and value.startswith("scrapy."):
        yield value


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some are deprecated
    for module in iter_modules(scrapy.commands.__path__, "scrapy.commands."):
        import_module(module.name)
    for command in entry_points(group="scrapy.commands"):
        command.load()
    for name, setting in vars(default_settings).items():
        if name.isupper():
            for path in default_classes(setting):
                load_object(path)
