"""The rules of a response, read once for each chain of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy.http import HtmlResponse

from scrapy_rep.origins.requests import chain_behind
from scrapy_rep.protocol.page import PageRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.http import Response

_HTML = (b"text/html", b"application/xhtml+xml")

_read: WeakKeyDictionary[Response, dict[tuple[str, ...], PageRules]] = WeakKeyDictionary()


def page_rules(response: Response, agents: str | Sequence[str] | None = None) -> PageRules:
    """Return the rules in the ``X-Robots-Tag`` headers and the metas of *response*.

    :param agents: product tokens; None for those of the crawl
    """
    if agents is None:
        chain = chain_behind(response.request)
    else:
        chain = (agents,) if isinstance(agents, str) else tuple(agents)
    known = _read.setdefault(response, {})
    rules = known.get(chain)
    if rules is None:
        rules = PageRules.from_headers(response.headers.getlist("X-Robots-Tag"), chain)
        if is_html(response):
            rules |= PageRules.from_html(response.body, encoding_of(response), chain)
        known[chain] = rules
    return rules


def is_html(response: Response) -> bool:
    """Return whether a browser would treat *response* as HTML."""
    if isinstance(response, HtmlResponse):
        return True
    return (response.headers.get("Content-Type") or b"").strip().lower().startswith(_HTML)


def encoding_of(response: Response) -> str:
    """Return the encoding of the markup of *response*. Finding it is slow, and needed only where markup
    isn't ASCII, with zeros among the first bytes, or escapes."""
    if b"\0" in response.body[:1024] or b"\x1b" in response.body:
        return getattr(response, "encoding", None) or "utf-8"
    return "utf-8"
