"""The command ``scrapy robots``: its options, and the modules that carry them out.

Scrapy imports this module for every ``scrapy`` command, so it imports nothing that Scrapy has not
imported by then. Each action is a module of its own, imported when needed, with a function
``run(command, arguments, options)`` that returns the exit status, or raises ``UsageError`` or
``CommandError``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from scrapy.settings import Settings

# Options that name a module of this package, and the options that have no effect on each. Without
# any of them, `decide` answers.
_ACTIONS = {
    "lint": ("file", "agent", "explain"),
    "sitemaps": ("file", "explain"),
    "cache": ("file", "agent", "explain"),
    "page": ("explain",),
    "usage": ("file", "explain"),
    "report": ("file", "agent", "explain", "json"),
}


class RobotsCommand(ScrapyCommand):
    """``scrapy robots``"""

    settings: Settings  # Scrapy sets it

    # Data on standard output; the log only if asked for.
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

    def add_options(self, parser: ArgumentParser) -> None:
        super().add_options(parser)

        def option(name: str, text: str, metavar: str | None = None, *, many: bool = False) -> None:
            if metavar is None:
                parser.add_argument(name, action="store_true", help=text)
            elif many:
                text += "; may be repeated"
                parser.add_argument(name, action="append", metavar=metavar, default=[], help=text)
            else:
                parser.add_argument(name, metavar=metavar, help=text)

        agent = "product token, or several joined by commas (default: the project's)"
        option("--agent", agent, "TOKEN", many=True)
        option("--spider", "use the settings and the agent of this spider", "NAME")
        option("--file", "read robots.txt from FILE (-: standard input)", "FILE")
        option("--json", "print JSON, one object a line")
        option("--explain", "also show how it was decided: groups, all matching rules, steps")
        option("--lint", "list likely mistakes in a robots.txt (of a URL, or a file)")
        option("--sitemaps", "list a site's sitemaps as a tree, and count their URLs")
        option("--cache", "list the project's robots.txt cache, or what it has of hosts or URLs")
        option("--page", "show X-Robots-Tag headers and robots metas of pages (URLs, or --file)")
        option("--usage", "show whether pages may be used for AI training, search and so on")
        header = "with --page --file: a header of the page, such as 'X-Robots-Tag: noindex'"
        option("--header", header, "HEADER", many=True)
        option("--report", "print the report of crawls (HTML) from files of REP_DECISIONS")
        option("--drop", "with --cache: remove the entries instead")

    def process_options(self, args: list[str], opts: Namespace) -> None:
        super().process_options(args, opts)
        # Python before 3.13 turns the value of "--file=--" into an empty list.
        for name, value in vars(opts).items():
            if name in ("file", "spider") and value == []:
                setattr(opts, name, "--")
            elif name in ("agent", "header"):
                setattr(opts, name, ["--" if one == [] else one for one in value])
        # It would turn our output into log messages.
        self.settings.set("LOG_STDOUT", False, priority="cmdline")
        if opts.spider is None:
            # No spider is needed, so one that can't be imported must not matter.
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
            raise UsageError(f"--{actions[0]} and --{actions[1]} can't be combined")
        for name in _ACTIONS[actions[0]] if actions else ():
            if getattr(opts, name) not in (None, False, []):  # an empty name is one too
                raise UsageError(f"--{name} has no effect with --{actions[0]}")
        if opts.drop and not opts.cache:
            raise UsageError("--drop needs --cache")
        if opts.header and not (opts.page and opts.file is not None):
            raise UsageError("--header needs --page and --file")
        fetches = opts.file is None and not opts.cache and not opts.report
        if opts.lint:
            fetches = any("://" in one for one in args)
        self.requires_crawler_process = fetches

    def run(self, args: list[str], opts: Namespace) -> None:
        from scrapy_rep.commands import ending, inputs
        from scrapy_rep.settings import RepSettings, warn_of_unknown

        if opts.spider is not None:
            inputs.use_spider(self.settings, opts.spider)
        ending.set_up_logging(self.settings, configured=self.crawler_process is not None)
        warn_of_unknown(self.settings)
        name = next((name for name in _ACTIONS if getattr(opts, name)), "decide")
        action = import_module(f"scrapy_rep.commands.{name}")

        def act() -> ending.Status:
            RepSettings.from_settings(self.settings)  # wrong settings end it before any crawl
            return action.run(self, args, opts)  # type: ignore[no-any-return]

        self.exitcode = ending.status_of(act)
