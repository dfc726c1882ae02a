"""What the record says of an answer to the request for a robots.txt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scrapy_rep.origins.answer import is_lost_connection, is_tls_failure
from scrapy_rep.protocol.availability import REDIRECTS, Outcome
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.reporting.record import iso
from scrapy_rep.storages.entry import UnreadableEntry

if TYPE_CHECKING:
    from scrapy_rep.origins.flights import Resolution

OUTCOMES = {
    "rules": "with rules",
    "empty": "empty file",
    "html": "HTML page in its place",
    "challenge": "bot wall in its place",
    "missing": "missing",
    "redirected": "redirects without end or aim",
    "unreachable": "unreachable",
    "none": "no answer",
}
"""What came of the requests for an origin's robots.txt, in words, in the order of the report."""

CONFIGURATION = "configuration"
"""Why there is no answer if the project keeps us from asking."""

# Bytes of a body that are searched.
_SEARCHED = 20_000
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s{0,1000}<(?:!doctype\s{1,9}html|html|head|body|\?xml|!--)", re.IGNORECASE
)
# A line that says something, not only a comment.
_SAYS = re.compile(rb"^[ \t\v\f]*[^#\s\x00]", re.MULTILINE)
# Of bot walls: Cloudflare, Imperva, DataDome, PerimeterX, AWS, Akamai, and captchas of all kinds.
_WALL = (
    *(b"challenge-platform", b"cf-chl", b"just a moment", b"_incapsula_", b"datadome", b"captcha"),
    *(b"perimeterx", b"awswaf", b"aws-waf", b"bot manager", b"are you human", b"are you a human"),
    *(b"are you a robot", b"verify you are"),
)

_SHORT = 60
_KINDS = {
    "CannotResolveHostError": "unknown host",
    "UnsupportedURLSchemeError": "unknown host",
    "DownloadTimeoutError": "timeout",
    "TimeoutError": "timeout",
    "DownloadConnectionRefusedError": "refused",
    "ProxyError": "proxy",
    "RedirectRefused": "redirect refused",
    "ResponseDataLossError": "invalid answer",
    "InvalidStatus": "invalid answer",
}


def answer_fields(resolution: Resolution, delay: float, now: float) -> dict[str, Any]:
    """Return the fields of the record for an answer.

    :param delay: seconds between requests, as far as ``REP_CRAWL_DELAY`` grants it
    """
    state, answer, flight = resolution.state, resolution.answer, resolution.flight
    entry = state.entry
    failed = entry.unreachable_since is not None
    error = answer.error if answer is not None else None
    reason = entry.error if failed else (answer.note or None if answer is not None else None)
    body = answer.body if answer is not None else _body_of(resolution)
    has_body = not failed and entry.has_copy
    fetched = answer is not None and answer.asked
    status = answer.status if answer is not None else entry.status
    about = {
        "outcome": "unreachable" if failed else _outcome(entry.outcome, status, body),
        "stored": answer is None,
        "asked": iso(flight.asked_at) if flight is not None and fetched else None,
        "fetches": flight.fetches if flight is not None and fetched else 0,
        "hops": answer.hops if answer is not None else entry.hops,
        "bytes": len(cut(body)) if has_body else None,
        "kind": kind_of(reason, error) if failed else None,
        "attempts": entry.attempts,
        "next": max(0.0, round(entry.next_attempt_at - now, 3)) if failed else None,
        "fresh_until": None if failed else iso(entry.fresh_until),
        "crawl_delay": delay or None,
        "sitemaps": len(state.robots.sitemaps) if has_body and state.robots is not None else 0,
    }
    return {
        "url": (answer.url if answer is not None else entry.url) or state.origin.robots_url,
        "status": status,
        "sha256": entry.sha256 if has_body else None,
        "fetched": iso(entry.updated_at if failed else entry.fetched_at),
        "reason": reason,
        "answer": about,
    }


def _body_of(resolution: Resolution) -> bytes:
    try:
        return resolution.state.entry.body
    except UnreadableEntry:
        return b""


def _outcome(outcome: Outcome, status: int | None, body: bytes) -> str:
    """Return a key of :data:`OUTCOMES`."""
    if outcome is Outcome.MISSING:
        return "redirected" if status in REDIRECTS else "missing"
    if outcome is Outcome.UNREACHABLE:
        return "unreachable"
    start = body[:_SEARCHED]
    if _HTML.match(start):
        text = start.lower()
        return "challenge" if any(words in text for words in _WALL) else "html"
    return "rules" if len(body) > _SEARCHED or _SAYS.search(body) else "empty"


def kind_of(reason: str | None, error: Exception | None = None, *, short: bool = False) -> str:
    """Return why a robots.txt is unreachable, in a word or two.

    :param error: what was raised, if that is known
    :param short: of what has no such word, return the beginning of *reason* instead of "other"
    """
    name = (reason or "").partition(":")[0]
    if name.startswith("HTTP ") or name in _KINDS:
        return _KINDS.get(name, name[:20])
    if error is not None and is_tls_failure(error):
        return "TLS"
    if error is not None and is_lost_connection(error):
        return "connection lost"
    return (reason or "")[:_SHORT] if short else "other"
