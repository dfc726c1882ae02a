"""Records of crawls (REP_DECISIONS), made up, and what a report makes of them."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from scrapy_rep.reporting.report import ReportData
from scrapy_rep.text import iso

NOW = 1_800_000_000.0
CRAWL = "0123456789ab"
FIELDS = (
    *("time", "url", "agent", "origin", "verdict", "rule", "line", "group", "sha256"),
    *("fetched", "status", "reason"),
)


def line(
    verdict: str, at: float = 0.0, origin: str | None = None, **more: Any
) -> bytes:
    """A line of a record, *at* seconds after :data:`NOW`."""
    fields: dict[str, Any] = dict.fromkeys(FIELDS)
    fields |= {
        "time": iso(NOW + at, "milliseconds"),
        "origin": origin,
        "verdict": verdict,
        "dry_run": False,
    }
    return json.dumps({**fields, "crawl": CRAWL, **more}).encode() + b"\n"


def answer(outcome: str, at: float, origin: str, **more: Any) -> bytes:
    """The line of an answer; fields of ``answer`` come in *about*."""
    about = {
        "outcome": outcome,
        "fetches": 1,
        "asked": iso(NOW + at - 0.2, "milliseconds"),
        **more.pop("about", {}),
    }
    if outcome == "unreachable":
        about["kind"] = more.get("reason", "HTTP 503")
    return line("answer", at, origin, url=f"{origin}/robots.txt", answer=about, **more)


def started(spider: str = "many", **more: Any) -> bytes:
    """The first line."""
    about = {
        "spider": spider,
        "agent": "ExampleBot",
        "version": "1.0",
        "scrapy": "2.19.0",
    }
    changed = {"REP_HOLD_MAX_WAIT": "5", "REP_REPORT": "robots.html"}
    return line("crawl_started", settings={**about, "changed": changed}, **more)


def ended(at: float, **counts: Any) -> bytes:
    """The last line."""
    return line("crawl_ended", at, reason="finished", counts=counts)


def data_of(*lines: bytes) -> ReportData:
    """What a report makes of these lines."""
    return ReportData.read([BytesIO(b"".join(lines))])


def many_lines(
    count: int,
    *,
    rule: str = "",
    url: str = "x",
    error: str = "HTTP 503",
    origin: str = "",
) -> list[bytes]:
    """The record of *count* origins; every tenth is unreachable, half of these for good; every seventh
    has no robots.txt, some have a page of HTML in its place."""
    lines = [started(f"many{origin}")]
    for number in range(count):
        one = f"http://site{number}{origin}.example"
        if number % 10 == 1:
            lines.append(answer("unreachable", number, one, reason=error, status=503))
            lines.append(line("held", number, one, url=f"{one}/{url}", reason=error))
            if number % 20 == 1:
                lines.append(answer("rules", number + number % 50, one, status=200))
                lines.append(
                    line("released", number + number % 50, one, url=f"{one}/{url}")
                )
        else:
            kind = (
                "missing"
                if number % 7 == 0
                else "html"
                if number % 11 == 0
                else "rules"
            )
            lines.append(answer(kind, 1, one, status=404 if kind == "missing" else 200))
        lines.append(line("allowed_count", count, one, count=100))
        pattern = f"Disallow: /{rule or number}"
        about = {"rule": pattern, "line": number % 5 + 1, "group": f"*{origin}"}
        refused = line("disallowed", number, one, url=f"{one}/{url}", **about)
        lines += [refused] * (number % 9 + 1)
    listed = {
        "found": "listed",
        "by": "http://site1.example/robots.txt",
        "kind": "urlset",
    }
    good = {**listed, "entries": 900, "taken": 897, "rejected": {"already known": 3}}
    failed = {
        "found": "index",
        "by": "http://site2.example/a.xml",
        "failed": "HTTP 404",
    }
    for number, about in enumerate((good, failed), 1):
        site = f"http://site{number}{origin}.example"
        lines.append(
            line("sitemap", count, site, url=f"{site}/{url}.xml", sitemap=about)
        )
    page = {
        "url": f"http://site1{origin}.example/{url}",
        "reason": f"meta robots: {url}",
    }
    lines.append(line("noindex", count, f"http://site1{origin}.example", **page))
    lines.append(ended(count + 60))
    return lines


def many(count: int, **more: str) -> ReportData:
    """What a report makes of that."""
    return data_of(*many_lines(count, **more))
