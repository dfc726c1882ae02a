"""A Scrapy extension that records what happened to every site and prints a table at the end."""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from textwrap import wrap

from scrapy import signals
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.httpobj import urlparse_cached

from example.sites import SITES, address
from scrapy_rep import signals as rep_signals
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import product_token

COLUMNS = {
    "site": 10,
    "robots.txt answered": 25,
    "fetched": 20,
    "dropped, and why": 40,
    "sitemaps": 16,
}
LEGEND = """\
line: the line of robots.txt that decided. rules for *: no group names this crawler.
held: kept at the scheduler until robots.txt arrived."""


class Report:
    def __init__(self, crawler):
        self.agent = product_token(crawler.settings["USER_AGENT"])
        # Origin -> column -> what to print there, a line each (a dict is a set that keeps order)
        self.rows = defaultdict(lambda: defaultdict(dict))
        self.held = set()  # URLs
        for handler, signal in (
            (self.request_held, rep_signals.request_held),
            (self.robots_resolved, rep_signals.robots_resolved),
            (self.sitemap_discovered, rep_signals.sitemap_discovered),
            (self.response_received, signals.response_received),
            (self.spider_closed, signals.spider_closed),
        ):
            crawler.signals.connect(handler, signal=signal)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def note(self, origin, column, text):
        self.rows[origin][column][text] = True

    def robots_resolved(self, origin, outcome, status, hops, robots, error):
        answer = str(status or error)
        if outcome is Outcome.RULES:
            group = robots.decide(origin.robots_url, self.agent).agent
            meaning = f"rules for {group}" if group else "no rules for us"
        elif outcome is Outcome.MISSING:
            meaning = "no restrictions"
            if status >= 500:
                answer += " that says 'not found'"
            elif status < 400:
                answer = "then one more"
        else:
            meaning = "unreachable"
        way = f"{hops} redirect{'s' * (hops > 1)}, " if hops else ""
        then = "then " if self.rows[origin]["robots.txt answered"] else ""
        self.note(origin, "robots.txt answered", f"{then}{way}{answer}: {meaning}")

    def request_held(self, request):
        self.held.add(request.url)

    def sitemap_discovered(self, origin, url):
        self.note(origin, "sitemaps", url.removeprefix(str(origin)))

    def response_received(self, request):
        if request.callback is not NO_CALLBACK:  # which marks what no spider asked for
            held = " (held)" if request.url in self.held else ""
            self.note(Origin.from_url(request.url), "fetched", path(request) + held)

    def dropped(self, failure):
        """The errback of the spider's requests."""
        error = failure.value
        if isinstance(error, RobotsDisallowed):
            rule = error.decision.rule
            why = f"line {rule.line}: {rule}"
        elif isinstance(error, RobotsUnreachable):
            why = f"unreachable: {error.reason}"
        else:
            why = f"{type(error).__name__}: {error}"
        origin = Origin.from_url(failure.request.url)
        self.note(origin, "dropped, and why", f"{path(failure.request)} ({why})")

    def spider_closed(self):
        if not self.rows:
            return  # the crawl did not begin
        names = {Origin.from_url(address(name)): name for name in SITES}
        order = {origin: number for number, origin in enumerate(names)}
        print_line(COLUMNS)
        print_line("-" * width for width in COLUMNS.values())
        for origin in sorted(
            self.rows, key=lambda origin: order.get(origin, len(order))
        ):
            row = {"site": [names.get(origin, str(origin))], **self.rows[origin]}
            row["fetched"] = [" ".join(sorted(row.get("fetched", [])))]
            row["dropped, and why"] = sorted(row.get("dropped, and why", []))
            cells = [
                [line for text in row.get(name, []) for line in wrap_cell(text, width)]
                or ["-"]
                for name, width in COLUMNS.items()
            ]
            for line in zip_longest(*cells, fillvalue=""):
                print_line(line)
        print(LEGEND)


def path(request):
    parts = urlparse_cached(request)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path or "/"


def wrap_cell(text, width):
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def print_line(cells):
    line = "  ".join(
        f"{cell:{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=True)
    )
    print(line.rstrip())
