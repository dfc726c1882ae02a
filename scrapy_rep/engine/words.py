"""Words for people."""

from __future__ import annotations

import json
import re
import time
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False).encode

_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Return *seconds* as people say it: ``40 s``, ``8 min``, ``3 h``."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def text_of(error: Exception) -> str:
    """Return the kind and the message of *error*, with no full stop: the sentence goes on."""
    text = str(error).strip().rstrip(".")
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def clean(text: str) -> str:
    """Return *text* with every character that can't be printed as an escape: ``\\x1b``,
    ``\\u202e``.

    Everything that others wrote goes through here on its way to people: rules, URLs, messages of
    errors. Control characters steer terminals, newlines forge lines of a log, marks of direction
    make text look like another, and half of a surrogate pair can't be encoded at all.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(one: str) -> str:
    if one.isprintable():
        return one
    code = ord(one)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def date(seconds: float, form: str) -> str:
    """Return seconds since the epoch as :func:`time.strftime` writes them, UTC; ``?`` for what is
    beyond all dates: a clock may say anything."""
    try:
        return time.strftime(form, time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601, UTC; None for None, and for what is beyond all
    dates."""
    text = "?" if seconds is None else date(seconds, "%Y-%m-%dT%H:%M:%SZ")
    return None if text == "?" else text


def json_line(record: dict[str, Any]) -> str:
    """Return *record* as JSON on one line, which holds nothing that :func:`clean` would escape.

    Values stay what they were: JSON has escapes of its own. Only half of a surrogate pair becomes
    text, since many readers refuse a line that has one.
    """
    text = _encode(record)
    return text if text.isprintable() else _NOT_ASCII.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    one = match[0]
    if one.isprintable():
        return one
    if "\ud800" <= one <= "\udfff":
        return "\\" + clean(one)
    return json.dumps(one)[1:-1]
