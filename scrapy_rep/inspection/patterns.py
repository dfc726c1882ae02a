"""What the pattern of a rule matches, and whether its author may have meant something else (REP.md
section 8). Patterns are as compared: percent-encoded."""

from __future__ import annotations

import re
from typing import NamedTuple

_STARS = re.compile(r"\*+")
_FOLDER = re.compile(r"(?<=/)\*(?=/)")


class Paths(NamedTuple):
    """The paths that a pattern matches. Patterns with equal ones match the same paths; not the
    other way round."""

    text: str
    """Without what makes no difference."""
    is_anchored: bool
    """Whether the path ends where the pattern does."""


ALL_PATHS = Paths("/", False)


def can_match(pattern: str) -> bool:
    """Return whether a pattern matches any path at all."""
    return pattern[:1] in ("/", "*")


def paths_of(pattern: str) -> Paths:
    """Return the paths of a pattern that can match. A ``$`` before a ``*`` at the end is a plain
    dollar sign: ``/x$*`` begins with ``/x$``, and ``/x$`` is ``/x`` alone."""
    is_anchored = pattern.endswith("$")
    text = _STARS.sub("*", pattern[:-1] if is_anchored else pattern)
    if text.endswith("*"):
        text, is_anchored = text[:-1], False
    if text in ("", "/") and not is_anchored:
        return ALL_PATHS
    return Paths(text, is_anchored)


def matches_all(pattern: str) -> bool:
    return can_match(pattern) and paths_of(pattern) == ALL_PATHS


def is_star_needless(pattern: str) -> bool:
    """Return whether a pattern matches the same paths without the ``*`` at its end."""
    if len(pattern) < 2 or not pattern.endswith("*"):
        return False
    shorter = pattern.rstrip("*")
    return shorter == "" or paths_of(shorter) == paths_of(pattern)


def is_index(pattern: str) -> bool:
    """Return whether an allow with this pattern also allows the directory of the page."""
    return pattern.startswith("/index.htm", pattern.rfind("/"))


def directory_of(pattern: str) -> str:
    return pattern[: pattern.rfind("/") + 1]


# Longer paths aren't tried.
_MAX_PATH = 500


def example_of(pattern: str) -> str:
    """Return a path that a pattern matches, "" if none comes to mind."""
    if not can_match(pattern) or len(pattern) > _MAX_PATH:
        return ""
    path = _FOLDER.sub("x", pattern.removesuffix("$")).replace("*", "")
    return path if path[:1] == "/" else f"/{path}"


# Spaces and tabs: crawlers send them as %20 and %09.
BLANK = re.compile(r"[ \t\v\f]")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*/?(.*)", re.DOTALL)
_WORDS = {"all": "/", "everything": "/", "none": "", "nothing": ""}


def is_url(written: str) -> bool:
    return _URL.match(written) is not None


def path_meant(written: str) -> str:
    """Return the path that the author of a rule that begins with neither ``/`` nor ``*`` may have
    meant."""
    if url := _URL.match(written):
        return f"/{url[1]}"
    if (word := written.lower()) in _WORDS:
        return _WORDS[word]
    if written[0] in ".?&=":
        return f"/*{written}"
    return "/" + written.lstrip("\\")


# Where another path begins, after a comma.
_COMMA = re.compile(r",(?:[ \t]|%20)*(?=/)")


# So many of them are looked at.
_MAX_JOINED = 5


def joined_paths(pattern: str) -> list[str]:
    """Return the first paths that are joined by commas in a pattern. It matches none of these: none
    has the comma."""
    if not can_match(pattern):
        return []
    parts = [part for part in _COMMA.split(pattern, _MAX_JOINED) if part]
    paths = [example_of(part) for part in parts[:_MAX_JOINED]]
    return paths if len(paths) > 1 and all(paths) else []


# What is special in regular expressions alone, and hardly occurs in paths: a choice, a class, an
# escaped character, "anything" after something that isn't a file's name. `/index.*` and `/*.*` are
# paths.
_REGEX = re.compile(
    r"\([^()|]{0,99}\|[^()]{0,99}\)|\(\?:|\[[a-zA-Z0-9_]{0,9}[a-zA-Z0-9]-[a-zA-Z0-9][^\[\]]{0,9}\][*+]?|"
    r"\\[dDwWsSbB.?/]|\.\+|(?<![a-zA-Z0-9.*/])\.\*|(?<=[^/]/)\.\*|\{\d{0,9},\d{0,9}\}|^/?\^"
)


def regular_expression_in(pattern: str) -> str:
    """Return what only a regular expression would have, "" for nothing."""
    expression = _REGEX.search(pattern)
    return expression[0] if expression else ""


# A dollar sign that begins a name, as in `/$file` and `?$price`, is meant as one.
_DOLLAR = re.compile(r"\$(?!\Z)(?!(?<=[/*?&=]\$)[a-zA-Z])(?!%7B|\{|\()")


def has_inner_dollar(pattern: str) -> bool:
    """Return whether a ``$`` that is meant as the end of the URL isn't the last character."""
    return _DOLLAR.search(pattern) is not None
