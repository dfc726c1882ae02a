"""The command ``scrapy robots``.

Scrapy imports this module for every ``scrapy`` command, so it imports nothing that
Scrapy has not imported by then. Each action (commands/options.py lists them) is a
function of the same name, in a module that is imported when needed. The function gets a
:class:`~scrapy_rep.commands.crawl.CrawlTask`, and may raise ``WrongUsage`` or
``Ending``. :mod:`scrapy_rep.__main__` is the same command for files, without Scrapy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from scrapy.settings import Settings


class RobotsCommand(ScrapyCommand):
    """``scrapy robots``, found by Scrapy through an entry point in setup.cfg."""

    settings: Settings
    """The settings of the project. Scrapy sets this before it calls any of these
    methods."""

    # Only the answer is to be printed, so there is no log unless --loglevel or
    # --logfile asks for one.
    default_settings = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options] [URL ...]"

    def short_desc(self) -> str:
        return "Show which line of robots.txt allows or forbids a URL"

    def long_desc(self) -> str:
        return (
            "Show whether robots.txt lets a crawler fetch each URL, and which line decides. "
            "robots.txt is fetched as the project's crawls fetch it. Give URLs as arguments, or "
            "one per line on standard input. Exit status: 0 all allowed, 1 some disallowed, "
            "2 wrong usage or input, 3 some robots.txt unreachable."
        )

    # Scrapy calls the following three methods in this order.

    def add_options(self, parser: ArgumentParser) -> None:
        from scrapy_rep.commands.options import add_options

        super().add_options(parser)
        add_options(parser)

    def process_options(self, args: list[str], opts: Namespace) -> None:
        from scrapy_rep.commands.options import check_options
        from scrapy_rep.commands.output import WrongUsage, usage_error

        super().process_options(args, opts)
        # LOG_STDOUT would turn what the command prints into log messages.
        self.settings.set("LOG_STDOUT", False, priority="cmdline")
        if opts.spider is None:
            # No spider is needed, so it must not matter if a spider can't be imported.
            loader = "scrapy.spiderloader.DummySpiderLoader"
            self.settings.set("SPIDER_LOADER_CLASS", loader, priority="cmdline")
        try:
            check_options(opts, args)
        except WrongUsage as error:
            raise UsageError(usage_error(error, "scrapy"), print_help=False) from None

    def run(self, args: list[str], opts: Namespace) -> None:
        from scrapy_rep.commands.crawl import CrawlTask, set_up_logging, use_spider
        from scrapy_rep.commands.options import action_and_module
        from scrapy_rep.commands.output import (
            ExitStatus,
            WrongUsage,
            complain,
            usage_error,
        )
        from scrapy_rep.exceptions import SettingsError
        from scrapy_rep.settings import warn_of_unknown

        action, module = action_and_module(opts)
        try:
            if opts.spider is not None:
                use_spider(self.settings, opts.spider)
            set_up_logging(self.settings)
            warn_of_unknown(self.settings)
            task = CrawlTask(self, args, opts)
            # The function has the action's name, such as lint() in
            # commands/verdicts.py.
            carry_out = getattr(import_module(module), action)
            self.exitcode = task.run(carry_out)
        except WrongUsage as error:
            raise UsageError(usage_error(error, "scrapy")) from None
        except SettingsError as error:
            complain(error)
            self.exitcode = ExitStatus.USAGE
