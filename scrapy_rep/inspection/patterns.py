"""What the pattern of a rule matches, and whether its author may have meant something
else (REP.md section 8). Patterns are as the matcher compares them: percent-encoded."""

from __future__ import annotations

import re
from typing import NamedTuple

# Several stars match the same as one.
_STARS = re.compile(r"\*+")

# A star in place of a folder's name.
_STAR_FOLDER = re.compile(r"(?<=/)\*(?=/)")

# Characters: for a longer pattern, example_of() makes up no path.
_MAX_PATTERN = 500

BLANK = re.compile(r"[ \t\v\f]")
"""A space or a tab. Crawlers send them as %20 and %09."""

# A URL with its scheme and host. Group 1: its path, without the first slash.
_WRITTEN_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/]*/?(.*)", re.DOTALL)

# What people write as a pattern, and what they should have written.
_PATTERN_OF_WORD = {"all": "/", "everything": "/", "none": "", "nothing": ""}

# A comma before another path.
_COMMA = re.compile(r",(?:[ \t]|%20)*(?=/)")

# Of the paths that are joined by commas in a pattern, this many are looked at.
_MAX_JOINED = 5

# What is special in regular expressions alone, and hardly occurs in paths: a choice, a
# class, an escaped character, or `.*`, but not after the name of a file: `/index.*` and
# `/*.*` are paths.
_REGEX = re.compile(
    r"\([^()|]{0,99}\|[^()]{0,99}\)|\(\?:|\[[a-zA-Z0-9_]{0,9}[a-zA-Z0-9]-[a-zA-Z0-9][^\[\]]{0,9}\][*+]?|"
    r"\\[dDwWsSbB.?/]|\.\+|(?<![a-zA-Z0-9.*/])\.\*|(?<=[^/]/)\.\*|\{\d{0,9},\d{0,9}\}|^/?\^"
)

# A dollar sign within a pattern that may be meant as the end of the URL: it begins
# neither a name, as in `/$file` and `?$price`, nor a placeholder, as in `${name}`.
_DOLLAR = re.compile(r"\$(?!\Z)(?!(?<=[/*?&=]\$)[a-zA-Z])(?!%7B|\{|\()")


class Paths(NamedTuple):
    """The paths that a pattern matches. Patterns with equal ``Paths`` match the same
    paths, but those that match the same paths may have different ``Paths``."""

    text: str
    """The pattern without what makes no difference, such as a second star."""
    is_anchored: bool
    """Whether a path has to end where the pattern ends."""


ALL_PATHS = Paths("/", False)


def can_match(pattern: str) -> bool:
    """Return whether a pattern matches any path at all."""
    return pattern[:1] in ("/", "*")


def paths_of(pattern: str) -> Paths:
    """Return the paths that *pattern*, which can match, does match."""
    is_anchored = pattern.endswith("$")
    text = _STARS.sub("*", pattern.removesuffix("$"))
    # Behind a star, the end of the pattern makes no difference. A "$" before the star
    # is a plain dollar sign: "/x$*" matches what begins with "/x$", whereas "/x$"
    # matches "/x" alone.
    if text.endswith("*"):
        text = text.removesuffix("*")
        is_anchored = False
    if text in ("", "/") and not is_anchored:
        return ALL_PATHS
    return Paths(text, is_anchored)


def matches_all(pattern: str) -> bool:
    """Return whether a pattern matches every path."""
    return can_match(pattern) and paths_of(pattern) == ALL_PATHS


def is_star_needless(pattern: str) -> bool:
    """Return whether a pattern matches the same paths without the ``*`` at its end."""
    if len(pattern) < 2 or not pattern.endswith("*"):
        return False
    shorter = pattern.rstrip("*")
    return shorter == "" or paths_of(shorter) == paths_of(pattern)


def is_index(pattern: str) -> bool:
    """Return whether a pattern is about an index page, such as ``/shop/index.html``. An
    allow of it also allows its directory (REP.md section 8)."""
    return pattern.startswith("/index.htm", pattern.rfind("/"))


def directory_of(pattern: str) -> str:
    """Return a pattern up to its last slash."""
    return pattern[: pattern.rfind("/") + 1]


def example_of(pattern: str) -> str:
    """Return a path that a pattern matches; "" if this function can't make one up."""
    if not can_match(pattern) or len(pattern) > _MAX_PATTERN:
        return ""
    path = _STAR_FOLDER.sub("x", pattern.removesuffix("$"))
    path = path.replace("*", "")
    return path if path.startswith("/") else f"/{path}"


def is_url(written: str) -> bool:
    return _WRITTEN_URL.match(written) is not None


def path_meant(written: str) -> str:
    """Return the path that the author of a rule that begins with neither ``/`` nor
    ``*`` may have meant."""
    url = _WRITTEN_URL.match(written)
    if url is not None:
        return f"/{url[1]}"
    word = written.lower()
    if word in _PATTERN_OF_WORD:
        return _PATTERN_OF_WORD[word]
    # Such text is the rest of a path or a query, so something stands before it.
    if written[0] in ".?&=":
        return f"/*{written}"
    return "/" + written.lstrip("\\")  # some write a folder as Windows does


def joined_paths(pattern: str) -> list[str]:
    """Return the first paths that are joined by commas in a pattern; none if it is a
    single path. The pattern matches none of the paths, since none of them has the
    comma."""
    if not can_match(pattern):
        return []
    # The pattern is split at most five times. If there are six parts, the last is all
    # that is left of the pattern, and isn't looked at.
    parts = [part for part in _COMMA.split(pattern, _MAX_JOINED) if part]
    paths = [example_of(part) for part in parts[:_MAX_JOINED]]
    return paths if len(paths) > 1 and all(paths) else []


def regular_expression_in(pattern: str) -> str:
    """Return the part of a pattern that only a regular expression would have; "" if
    there is no such part."""
    expression = _REGEX.search(pattern)
    return expression[0] if expression else ""


def has_inner_dollar(pattern: str) -> bool:
    """Return whether a ``$`` that is meant as the end of the URL isn't the last
    character."""
    return _DOLLAR.search(pattern) is not None
