"""Words for people."""

from __future__ import annotations

import json
import re
import time
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False).encode

_AFTER_HOST = re.compile(r"[/?#@]")
# In a text. No URL of ours has a longer one.
_PASSWORD = re.compile(r"(//[^\s:/?#@]{0,100}):\S{1,300}@")
_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return *count* with its noun: ``1 request``, ``2,000 requests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Return *seconds* as text: ``40 s``, ``8 min``, ``3 h``."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def without_password(uri: str) -> str:
    """Return *uri* with ``***`` for a password: up to the last ``@``, since people leave ``:``, ``/``
    and ``@`` in passwords as they are."""
    scheme, slashes, rest = uri.partition("//")
    user, colon, rest = rest.partition(":")
    _, at, host = rest.rpartition("@")
    hidden = colon and at and not _AFTER_HOST.search(user)
    return f"{scheme}{slashes}{user}:***@{host}" if hidden else uri


def without_passwords(text: str) -> str:
    """Return *text* with ``***`` for the passwords of the URLs in it."""
    return _PASSWORD.sub(r"\1:***@", text)


def text_of(error: Exception) -> str:
    """Return the type and message of *error* for use within a sentence: without a full stop, nor
    passwords of URLs."""
    text = without_passwords(str(error)).strip().rstrip(".")
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def clean(text: str) -> str:
    """Return *text* with unprintable characters escaped: ``\\x1b``, ``\\u202e``.

    All outside text goes through here before people see it: rules, URLs, error messages. Control
    characters steer terminals, newlines forge log lines, direction marks disguise text, and half of
    a surrogate pair can't be encoded.
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
    """Return seconds since the epoch in a :func:`time.strftime` *form*, UTC; ``?`` if out of range."""
    try:
        return time.strftime(form, time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601, UTC; None for None, or if out of range."""
    text = "?" if seconds is None else date(seconds, "%Y-%m-%dT%H:%M:%SZ")
    return None if text == "?" else text


def json_line(record: dict[str, Any]) -> str:
    """Return *record* as one line of JSON without unprintable characters.

    JSON's own escapes keep the values as they are, except half of a surrogate pair, which many
    readers refuse: it becomes text.
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
