"""The options of ``scrapy robots``, and which go together. Imports no Scrapy."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.commands.output import WrongUsage

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

DEFAULT_ACTION = "decide"
"""The action that is carried out if no option names an action."""

WITHOUT_SCRAPY = (DEFAULT_ACTION, "compare", "lint")
"""Actions on files, which work without a project."""


class _Action(NamedTuple):
    """Something that the command can do."""

    module: str
    """The module of this folder that has a function of the action's name."""
    options: tuple[str, ...]
    """The options that have an effect on the action, besides ``--json`` and
    ``--spider``."""


# Each action but the first has the name of the option that asks for it. The first
# action is done if no option asks for another.
_ACTIONS = {
    DEFAULT_ACTION: _Action(
        "verdicts",
        ("agent", "agents_of_file", "agents_known", "file", "explain", "show", "csv"),
    ),
    "compare": _Action("comparison", ("agent", "agents_of_file", "agents_known")),
    "lint": _Action("verdicts", ("fail_on",)),
    "sitemaps": _Action("pages", ("agent",)),
    "page": _Action("pages", ("agent", "file", "header")),
    "usage": _Action("pages", ("agent",)),
    "cache": _Action("kept", ("drop",)),
    "held": _Action("kept", ()),
    "report": _Action("kept", ()),
}

# Options that choose how verdicts are printed. Only one may be given, or --json with
# --explain.
_FORMS = ("json", "csv", "explain", "show")

# An option is suggested if it is at least so similar to what was typed: from 0 to 1, as
# difflib counts.
_MIN_SIMILARITY = 0.75

# Arguments of add_argument(): for an option without a value, and for one that may be
# repeated.
_FLAG: dict[str, Any] = {"action": "store_true"}
_MANY: dict[str, Any] = {"action": "append", "default": []}

# Each option, with its help and its arguments of add_argument(). Scrapy takes a line of
# help that ends with a colon for a heading, so no help has a colon before a blank,
# where a line may end.
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
    """Have *parser* read the options of ``scrapy robots``."""
    # No short forms, such as "--comp" for "--compare". A script that relies on a short
    # form would stop working once another option begins like it.
    parser.allow_abbrev = False
    for name, (help_text, parsing) in _OPTIONS.items():
        parser.add_argument(name, help=help_text, **parsing)


def check_options(options: Namespace, arguments: Iterable[str]) -> None:
    """Raise :class:`WrongUsage` for options that don't exist, exclude each other, or
    would change nothing.

    :param arguments: what the parser takes for no option; unknown options are among
        them
    """
    values = [options.file, options.spider, options.held]
    values += options.agent
    values += options.header
    # Python before 3.13 makes an empty list of the value of "--file=--".
    if [] in values:
        raise WrongUsage("no option takes the value --")
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            hint = _hint_about(argument)
            raise WrongUsage(f"no such option: {argument!r}{hint}")
    _check_combination(options)


def _hint_about(argument: str) -> str:
    """Return which option may have been meant by *argument*, which is no option, for
    the end of an error; "" if no option is similar."""
    typed = argument.partition("=")[0]
    suggestions: list[str] = []
    if typed.startswith("--"):
        suggestions = [name for name in _OPTIONS if name.startswith(typed)]
    if not suggestions:
        suggestions = get_close_matches(typed, _OPTIONS, 1, _MIN_SIMILARITY)
    return f"; did you mean {' or '.join(suggestions)}?" if suggestions else ""


def action_and_module(options: Namespace) -> tuple[str, str]:
    """Return the action that *options* ask for, and the module that has a function of
    its name."""
    action = action_of(options)
    return action, f"scrapy_rep.commands.{_ACTIONS[action].module}"


def _given(options: Namespace, names: Iterable[str]) -> list[str]:
    """Return those of the options *names* that are given; an empty value counts as
    given."""
    given = []
    for name in names:
        # These are the values of options that aren't given.
        if getattr(options, name, None) not in (None, False, []):
            given.append(name)
    return given


def action_of(options: Namespace) -> str:
    """Return the action that *options* ask for: a key of :data:`_ACTIONS`."""
    actions = _given(options, _ACTIONS)
    return actions[0] if actions else DEFAULT_ACTION


def _option(name: str) -> str:
    """Return an option as it is typed: ``--fail-on`` for ``fail_on``."""
    return "--" + name.replace("_", "-")


def _check_combination(options: Namespace) -> None:
    """Raise ``WrongUsage`` for options that exclude each other, or have no effect
    together."""
    # Of the actions, only one may be asked for, and of the forms, only one chosen.
    for exclusive in (list(_ACTIONS), _FORMS):
        given = _given(options, exclusive)
        if len(given) > 1 and given != ["json", "explain"]:
            raise WrongUsage(
                f"{_option(given[0])} and {_option(given[1])} can't be combined"
            )
    action = action_of(options)
    limited: list[str] = []  # options that don't have an effect on every action
    for any_action in _ACTIONS.values():
        limited += any_action.options
    if action == "report":  # the report is always HTML, and made from the record alone
        limited += ["json", "spider"]
    for name in _given(options, limited):
        if name not in _ACTIONS[action].options:
            target = "verdicts" if action == DEFAULT_ACTION else _option(action)
            raise WrongUsage(f"{_option(name)} has no effect on {target}")
    if options.header and options.file is None:
        raise WrongUsage("--header needs --file")
