"""The command ``scrapy robots``: its options, and who answers them.

Scrapy imports this module whenever ``scrapy`` is called, whatever for: it imports nothing that
Scrapy has not imported by then. Each action is a module of its own, imported when it is asked
for, with a function ``run(command, arguments, options)`` that returns the exit status.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

# Each option is answered by the module of this package that has its name; without any: `decide`.
_ACTIONS = ("lint", "sitemaps", "cache", "page", "usage")

# Options that have no effect on each of these.
_DOES_NOT_TAKE = {
    "lint": ("file", "agent", "explain"),
    "sitemaps": ("file", "explain"),
    "cache": ("file", "agent", "explain"),
    "page": ("explain",),
    "usage": ("file", "explain"),
}


class RobotsCommand(ScrapyCommand):
    """``scrapy robots``"""

    # Data on standard output; the log only for those who ask for it.
    default_settings = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options] [URL ...]"

    def short_desc(self) -> str:
        return "Tell which line of robots.txt allows or forbids a URL"

    def long_desc(self) -> str:
        return (
            "Tell whether robots.txt lets a crawler fetch each URL, and by which line. The file is "
            "fetched as the project's crawls fetch it. URLs come from the command line, or one a "
            "line from standard input. Exit status: 0 all allowed, 1 some disallowed, 2 wrong "
            "usage or input, 3 a robots.txt could not be had."
        )

    def add_options(self, parser: ArgumentParser) -> None:
        super().add_options(parser)
        option = parser.add_argument
        option(
            "--agent",
            action="append",
            metavar="TOKEN",
            default=[],
            help="product token to ask for, or a chain of them joined by commas; may be repeated "
            "(default: what the project's crawls go by)",
        )
        option(
            "--spider",
            metavar="NAME",
            help="go by the settings, and the agent, of this spider of the project",
        )
        option("--file", metavar="FILE", help="read robots.txt from FILE (-: standard input)")
        option("--json", action="store_true", help="print JSON, one object a line")
        option(
            "--explain",
            action="store_true",
            help="print also how it was decided: groups, all rules that match, what was compared",
        )
        option(
            "--lint",
            action="store_true",
            help="list what the owner of a robots.txt (URL or FILE) would want to know",
        )
        option(
            "--sitemaps",
            action="store_true",
            help="list the sitemaps of a site (URL) as a tree, with counts",
        )
        option(
            "--cache",
            action="store_true",
            help="list what the project's robots.txt cache keeps, all or of these hosts; show what "
            "it keeps of a URL's origin, or the file that has a SHA-256",
        )
        option(
            "--page",
            action="store_true",
            help="tell what pages (URLs, or an HTML file with --file) say about themselves in "
            "X-Robots-Tag headers and metas",
        )
        option(
            "--usage",
            action="store_true",
            help="tell whether pages (URLs) may be used for AI training, search and the like, and "
            "who says so: robots.txt, headers or metas",
        )
        option(
            "--header",
            action="append",
            metavar="HEADER",
            default=[],
            help="with --page --file: a header of that page, 'X-Robots-Tag: noindex'; may be repeated",
        )
        option("--drop", action="store_true", help="with --cache: drop it instead")

    def process_options(self, args: list[str], opts: Namespace) -> None:
        super().process_options(args, opts)
        assert self.settings is not None
        # Below 3.13 Python takes the value off "--file=--", and leaves an empty list.
        for name, value in vars(opts).items():
            if name in ("file", "spider") and value == []:
                setattr(opts, name, "--")
            elif name in ("agent", "header"):
                setattr(opts, name, ["--" if one == [] else one for one in value])
        # It would turn what is printed into log messages.
        self.settings.set("LOG_STDOUT", False, priority="cmdline")
        if opts.spider is None:
            # None of the project is needed, so one that can't be imported must not matter.
            loader = "scrapy.spiderloader.DummySpiderLoader"
            self.settings.set("SPIDER_LOADER_CLASS", loader, priority="cmdline")
        level = self.settings.getpriority("LOG_LEVEL")
        if level is not None and level >= 40 and not opts.nolog:  # -s LOG_LEVEL=…
            self.settings.set("LOG_ENABLED", True, priority="cmdline")
        for argument in args:
            if argument.startswith("-") and argument != "-":
                from scrapy_rep.engine.words import clean

                raise UsageError(f"no such option: {clean(argument)}", print_help=False)
        actions = [name for name in _ACTIONS if getattr(opts, name)]
        if len(actions) > 1:
            raise UsageError(f"--{actions[0]} and --{actions[1]} exclude each other")
        for name in _DOES_NOT_TAKE[actions[0]] if actions else ():
            if getattr(opts, name) not in (None, False, []):  # an empty name is one too
                raise UsageError(f"--{name} does not go with --{actions[0]}")
        if opts.drop and not opts.cache:
            raise UsageError("--drop goes with --cache alone")
        if opts.header and not (opts.page and opts.file is not None):
            raise UsageError("--header goes with --page --file alone")
        # Nothing is fetched then.
        if (
            opts.file is not None
            or opts.cache
            or (opts.lint and not any("://" in one for one in args))
        ):
            self.requires_crawler_process = False

    def run(self, args: list[str], opts: Namespace) -> None:
        from scrapy_rep.commands import guard, inputs
        from scrapy_rep.settings import warn_of_unknown

        assert self.settings is not None
        if opts.spider is not None:
            inputs.use_spider(self.settings, opts.spider)
        guard.set_up_logging(self.settings, configured=self.crawler_process is not None)
        warn_of_unknown(self.settings)
        module = next((name for name in _ACTIONS if getattr(opts, name)), "decide")
        action = import_module(f"scrapy_rep.commands.{module}")
        self.exitcode = guard.status_of(lambda: action.run(self, args, opts))
