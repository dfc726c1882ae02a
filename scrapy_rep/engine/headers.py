"""Response headers, ignored if unreasonably long."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.http import Headers

MAX_HEADER = 16 * 1024
"""Bytes of all headers of one name. Twisted lets a folded header be megabytes long."""

MAX_ENCODINGS = 5
"""Of one body. Each may unpack to much more than the one around it."""


class NotCredible(ValueError):
    """A header is unreasonably long."""


def joined(headers: Headers | None, name: str) -> bytes:
    """Return the values of all headers with that name, joined by commas; empty without one.

    :raises NotCredible: if that is longer than :data:`MAX_HEADER`
    """
    values = headers.getlist(name) if headers is not None else []
    if sum(map(len, values)) + len(values) > MAX_HEADER:
        raise NotCredible(f"the {name} header is longer than {MAX_HEADER} bytes")
    return b",".join(values)


def text(headers: Headers | None, name: str) -> str | None:
    """Return the same as text; None without one, or if it is too long."""
    try:
        return joined(headers, name).decode("latin-1") or None
    except NotCredible:
        return None


def encodings(headers: Headers) -> list[str]:
    """Return the content encodings, lower case, in the order applied, without ``identity``.

    :raises NotCredible: also if there are more than :data:`MAX_ENCODINGS`
    """
    names = map(str.strip, joined(headers, "Content-Encoding").decode("latin-1").lower().split(","))
    found = [name for name in names if name not in ("", "identity")]
    if len(found) > MAX_ENCODINGS:
        raise NotCredible(f"{len(found)} content encodings, more than {MAX_ENCODINGS}")
    return found


def last(headers: Headers, name: str) -> bytes:
    """Return the last header's value; empty without one, or if it is too long."""
    value = headers.get(name) or b""
    return value if len(value) <= MAX_HEADER else b""
