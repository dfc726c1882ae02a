"""``python -m scrapy_rep FILE URL…``, or ``scrapy-rep``: what ``scrapy robots`` does with files, without
Scrapy, whose start takes a second."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from importlib import import_module
from typing import TYPE_CHECKING

from scrapy_rep.commands.options import (
    DEFAULT_ACTION,
    WITHOUT_SCRAPY,
    action_and_module,
    action_of,
    add_options,
    check_options,
)
from scrapy_rep.commands.output import ExitStatus, WrongUsage, complain, usage_error
from scrapy_rep.commands.task import Task

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

_USAGE = "scrapy-rep [options] FILE [URL ...]"
_DESCRIPTION = (
    "Show whether a robots.txt lets a crawler fetch each URL, and which line decides; with --lint, its "
    "likely mistakes. Give URLs or paths as arguments, or one per line on standard input. What needs a "
    "site or a project is done by scrapy robots, which has the same options."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with *arguments*; None for the arguments of the process. Return
    the exit status."""
    parser = ArgumentParser("scrapy-rep", _USAGE, _DESCRIPTION)
    add_options(parser)
    options, names = parser.parse_known_args(arguments)
    try:
        check_options(options, names)
        _check_needs(options)
        # Without --file, the first argument of the default action is the file.
        if action_of(options) == DEFAULT_ACTION and options.file is None:
            if not names:
                raise WrongUsage("no file given")
            options.file, *names = names
            if "://" in options.file:
                raise WrongUsage(
                    f"a site is asked by Scrapy: scrapy robots {options.file}"
                )
        action, module = action_and_module(options)
        # The function has the action's name, such as lint() in commands/verdicts.py.
        carry_out = getattr(import_module(module), action)
        return Task(names, options).run(carry_out)
    except WrongUsage as error:
        parser.error(usage_error(error, parser.prog))  # this ends the process
    except KeyboardInterrupt:
        complain("stopped before it was done")
        return ExitStatus.UNREACHABLE


def _check_needs(options: Namespace) -> None:
    """Raise ``WrongUsage`` for what needs Scrapy, and so only ``scrapy robots`` does."""
    action = action_of(options)
    if action not in WITHOUT_SCRAPY:
        raise WrongUsage(f"--{action} needs Scrapy: scrapy robots --{action}")
    if options.spider is not None:
        raise WrongUsage("--spider needs Scrapy: scrapy robots --spider")


if __name__ == "__main__":
    sys.exit(main())
