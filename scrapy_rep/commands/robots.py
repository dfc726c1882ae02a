"""The command ``scrapy robots``: its options, and the modules that carry them out.

Scrapy imports this module for every ``scrapy`` command, so it imports nothing that Scrapy has not
imported by then. Each action is a function of its name in a module imported when needed. It gets a
:class:`~scrapy_rep.commands.task.Task`, and may raise ``UsageError`` or ``Ending``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from scrapy.settings import Settings

# Actions: the module of each, and the options that have an effect on it, besides --json and
# --spider. Each is an option, too, except the first: what is done without any of these.
_ACTIONS = {
    "decide": ("verdicts", ("agent", "agents_of_file", "file", "explain", "show", "csv")),
    "compare": ("verdicts", ("agent", "agents_of_file")),
    "lint": ("verdicts", ("fail_on",)),
    "sitemaps": ("pages", ("agent",)),
    "page": ("pages", ("agent", "file", "header")),
    "usage": ("pages", ("agent",)),
    "cache": ("kept", ("drop",)),
    "held": ("kept", ()),
    "report": ("kept", ()),
}
_FORMS = ("json", "csv", "explain", "show")

_FLAG: dict[str, Any] = {"action": "store_true"}
_MANY: dict[str, Any] = {"action": "append", "default": []}
# Each option's help and how it is parsed. Scrapy takes a line of help that ends with a colon for a
# heading: no colon before a blank here.
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "--agent": (
        "product token of a crawler; A,B is one crawler, B being its fallback; may be repeated",
        {"metavar": "TOKEN", **_MANY},
    ),
    "--agents-of-file": ("ask about all agents that the robots.txt names, and *", _FLAG),
    "--spider": ("use the settings and the agent of this spider", {"metavar": "NAME"}),
    "--file": ("read robots.txt from FILE, - for standard input", {"metavar": "FILE"}),
    "--json": ("print JSON, one object a line", _FLAG),
    "--csv": ("print CSV, with a heading", _FLAG),
    "--explain": ("explain each verdict (groups, all matching rules, steps)", _FLAG),
    "--show": ("also print the robots.txt, with the deciding lines marked", _FLAG),
    "--compare": (
        "print the URLs whose verdict changes between two files or origins; without URLs, the rules",
        {"metavar": ("OLD", "NEW"), "nargs": 2},
    ),
    "--lint": ("list likely mistakes in a robots.txt, of a URL or a file", _FLAG),
    "--fail-on": (
        "with --lint, exit with 1 only for findings of this severity (error, warning, note) or above",
        {"metavar": "SEVERITY", "choices": ("error", "warning", "note")},
    ),
    "--sitemaps": ("list an origin's sitemaps as a tree, and count their URLs", _FLAG),
    "--page": ("show X-Robots-Tag headers and robots metas of pages, URLs or --file", _FLAG),
    "--header": (
        "with --page --file, a header of the page such as X-Robots-Tag:noindex; may be repeated",
        {"metavar": "HEADER", **_MANY},
    ),
    "--usage": ("show whether pages may be used for AI training, search and so on", _FLAG),
    "--cache": ("list the project's robots.txt cache, or what it has of hosts or URLs", _FLAG),
    "--drop": ("with --cache, remove the entries instead", _FLAG),
    "--report": ("print the report on crawls (HTML) from REP_DECISIONS files", _FLAG),
    "--held": ("list what the crawl with this JOBDIR holds", {"metavar": "JOBDIR"}),
}


class RobotsCommand(ScrapyCommand):
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
        for name, (text, how) in _OPTIONS.items():
            parser.add_argument(name, help=text, **how)

    def process_options(self, args: list[str], opts: Namespace) -> None:
        super().process_options(args, opts)
        # What Python before 3.13 makes of the value of "--file=--".
        if [] in (opts.file, opts.spider, opts.held, *opts.agent, *opts.header):
            raise UsageError("no option takes the value --")
        # It would turn our output into log messages.
        self.settings.set("LOG_STDOUT", False, priority="cmdline")
        if opts.spider is None:
            # No spider is needed, so one that can't be imported must not matter.
            loader = "scrapy.spiderloader.DummySpiderLoader"
            self.settings.set("SPIDER_LOADER_CLASS", loader, priority="cmdline")
        for argument in args:
            if argument.startswith("-") and argument != "-":
                raise UsageError(f"no such option: {argument!r}", print_help=False)
        _check_combination(opts)

    def run(self, args: list[str], opts: Namespace) -> None:
        from scrapy_rep.commands.output import Ending, complain, gravest, set_up_logging
        from scrapy_rep.commands.task import Task, use_spider
        from scrapy_rep.exceptions import SettingsError
        from scrapy_rep.settings import warn_of_unknown

        if opts.spider is not None:
            use_spider(self.settings, opts.spider)
        set_up_logging(self.settings)
        warn_of_unknown(self.settings)
        name = _action(opts)
        module = import_module(f"scrapy_rep.commands.{_ACTIONS[name][0]}")
        try:
            task = Task(self, args, opts)
            getattr(module, name)(task)
            task.output.flush()
            self.exitcode = gravest(*task.statuses)
        except (Ending, SettingsError) as error:
            if str(error):
                complain(error)
            self.exitcode = error.status if isinstance(error, Ending) else 2


def _given(opts: Namespace, names: Any) -> list[str]:
    """Return those of these options that are given; an empty value counts as given."""
    return [name for name in names if getattr(opts, name, None) not in (None, False, [])]


def _action(opts: Namespace) -> str:
    return (_given(opts, _ACTIONS) or ["decide"])[0]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_combination(opts: Namespace) -> None:
    """Raise ``UsageError`` for options that would change nothing."""
    for these in (list(_ACTIONS), _FORMS):
        given = _given(opts, these)
        if len(given) > 1 and given != ["json", "explain"]:
            raise UsageError(f"{_option(given[0])} and {_option(given[1])} can't be combined")
    action = _action(opts)
    others = [name for _, names in _ACTIONS.values() for name in names]
    if action == "report":  # always HTML, and from the record alone
        others += ["json", "spider"]
    for name in _given(opts, others):
        if name not in _ACTIONS[action][1]:
            what = "verdicts" if action == "decide" else _option(action)
            raise UsageError(f"{_option(name)} has no effect on {what}")
    if opts.header and opts.file is None:
        raise UsageError("--header needs --file")
