"""The options of ``scrapy robots``, and which of them go together. No Scrapy."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.output import WrongUsage

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

DECIDE = "decide"
"""The action without any option that names one."""

WITHOUT_SCRAPY = (DECIDE, "compare", "lint")
"""Actions on files, which work without a project."""

# Actions: the module of each, and the options that have an effect on it, besides --json and
# --spider. Each is an option, too, except the first: what is done without any of these.
_ACTIONS = {
    DECIDE: (
        "verdicts",
        ("agent", "agents_of_file", "agents_known", "file", "explain", "show", "csv"),
    ),
    "compare": ("comparison", ("agent", "agents_of_file", "agents_known")),
    "lint": ("verdicts", ("fail_on",)),
    "sitemaps": ("pages", ("agent",)),
    "page": ("pages", ("agent", "file", "header")),
    "usage": ("pages", ("agent",)),
    "cache": ("kept", ("drop",)),
    "held": ("kept", ()),
    "report": ("kept", ()),
}
# How similar the name of an option must be to be suggested; 1: identical.
_SIMILAR = 0.75

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
    "--agents-of-file": (
        "ask about all agents that the robots.txt names, and *",
        _FLAG,
    ),
    "--agents-known": (
        "ask about known crawlers (search, AI), of / if no URL is given",
        _FLAG,
    ),
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
    "--page": (
        "show X-Robots-Tag headers and robots metas of pages, URLs or --file",
        _FLAG,
    ),
    "--header": (
        "with --page --file, a header of the page such as X-Robots-Tag:noindex; may be repeated",
        {"metavar": "HEADER", **_MANY},
    ),
    "--usage": (
        "show whether pages may be used for AI training, search and so on",
        _FLAG,
    ),
    "--cache": (
        "list the project's robots.txt cache, or what it has of hosts or URLs",
        _FLAG,
    ),
    "--drop": ("with --cache, remove the entries instead", _FLAG),
    "--report": ("print the report on crawls (HTML) from REP_DECISIONS files", _FLAG),
    "--held": ("list what the crawl with this JOBDIR holds", {"metavar": "JOBDIR"}),
}


def add_options(parser: ArgumentParser) -> None:
    # "--agents" is no short form of anything, and never will be of another option.
    parser.allow_abbrev = False
    for name, (text, how) in _OPTIONS.items():
        parser.add_argument(name, help=text, **how)


def check_options(options: Namespace, arguments: Iterable[str]) -> None:
    """Raise :class:`WrongUsage` for options that aren't there, or would change nothing."""
    # What Python before 3.13 makes of the value of "--file=--".
    values = (
        options.file,
        options.spider,
        options.held,
        *options.agent,
        *options.header,
    )
    if [] in values:
        raise WrongUsage("no option takes the value --")
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            name = argument.partition("=")[0]
            meant = [
                known
                for known in _OPTIONS
                if known.startswith(name) and name.startswith("--")
            ]
            meant = meant or get_close_matches(name, _OPTIONS, 1, _SIMILAR)
            hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
            raise WrongUsage(f"no such option: {argument!r}{hint}")
    _check_combination(options)


def module_of(options: Namespace) -> tuple[str, str]:
    """Return the action that *options* ask for, and the module that has a function of its name."""
    action = action_of(options)
    return action, f"scrapy_rep.commands.{_ACTIONS[action][0]}"


def _given(options: Namespace, names: Any) -> list[str]:
    """Return those of these options that are given; an empty value counts as given."""
    return [
        name for name in names if getattr(options, name, None) not in (None, False, [])
    ]


def action_of(options: Namespace) -> str:
    return (_given(options, _ACTIONS) or [DECIDE])[0]


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_combination(options: Namespace) -> None:
    """Raise ``WrongUsage`` for options that would change nothing."""
    for these in (list(_ACTIONS), _FORMS):
        given = _given(options, these)
        if len(given) > 1 and given != ["json", "explain"]:
            raise WrongUsage(
                f"{_option(given[0])} and {_option(given[1])} can't be combined"
            )
    action = action_of(options)
    others = [name for _, names in _ACTIONS.values() for name in names]
    if action == "report":  # always HTML, and from the record alone
        others += ["json", "spider"]
    for name in _given(options, others):
        if name not in _ACTIONS[action][1]:
            target = "verdicts" if action == DECIDE else _option(action)
            raise WrongUsage(f"{_option(name)} has no effect on {target}")
    if options.header and options.file is None:
        raise WrongUsage("--header needs --file")
