"""How fast rules are parsed and matched, beside Protego, Scrapy's default parser.

    python benchmarks/matching.py [--corpus FILE] [--rounds N]

FILE is a ``.jsonl.gz`` of real robots.txt files, each with an agent and URLs to ask about: a
line is an object with ``robots`` (the bytes as latin-1 text), ``agent`` and ``cases`` (lists
that begin with a URL). Without it the files are made here, after what real ones look like.

Both parsers work on the same files and URLs in the same process, in turns. Their totals over
all files are compared: the medians of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import random
import statistics
from importlib.metadata import version
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.protocol import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

try:
    from protego import Protego
except ImportError:
    Protego = None

MAX_BYTES = 512_000
"""Both get no more than this of a file, as a crawler would hand them."""


class Site(NamedTuple):
    body: bytes
    text: str
    agent: str
    urls: list[str]


class Way(NamedTuple):
    """How one parser does it: three jobs for each site."""

    parse: Callable[[Site], Any]
    ready: Callable[[Site], Any]
    ask: Callable[[Any, Site], object]


def site(body: bytes, agent: str, urls: Iterable[str]) -> Site:
    body = body[:MAX_BYTES]
    return Site(body, body.decode("utf-8", "ignore"), agent, list(urls))


def read(path: str) -> Iterator[Site]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            body = record["robots"].encode("latin-1")
            yield site(body, record["agent"], (case[0] for case in record["cases"]))


WORDS = [
    "admin", "ajax", "api", "archive", "account", "basket", "blog", "cart", "category", "cgi-bin",
    "checkout", "comment", "content", "css", "download", "en", "error", "feed", "files", "forum",
    "help", "home", "image", "images", "include", "js", "json", "lang", "list", "login", "mail",
    "media", "member", "misc", "modules", "news", "node", "page", "pdf", "plugin", "print",
    "private", "product", "profile", "public", "register", "reply", "review", "rss", "scripts",
    "search", "seller", "share", "shop", "sitemap", "sort", "static", "tag", "temp", "theme", "tmp",
    "trackback", "uploads", "user", "users", "video", "wp-admin", "wp-content", "wp-includes",
]  # fmt: skip
BOTS = ["Googlebot", "bingbot", "AhrefsBot", "SemrushBot", "Yandex", "Baiduspider", "Slurp"]
# Half of the files are short, a few are very long: (rules at most, share of the files).
SIZES = {5: 30, 20: 30, 60: 25, 200: 12, 1000: 3}


def make(files: int = 400, seed: int = 2024) -> Iterator[Site]:
    """Files like those of real sites: the same each time."""
    chance = random.Random(seed)
    for number in range(files):
        longest = chance.choices(list(SIZES), list(SIZES.values()))[0]
        groups = [["*"]]
        if chance.random() < 0.4:
            groups += [[bot] for bot in chance.sample(BOTS, chance.randint(1, 6))]
        lines: list[str] = []
        rules: list[str] = []
        for agents in groups:
            if chance.random() < 0.3:
                lines.append(f"# {chance.choice(WORDS)} {chance.choice(WORDS)}")
            lines += [f"User-agent: {agent}" for agent in agents]
            for _ in range(chance.randint(1, longest if agents == ["*"] else 3)):
                rule = _rule(chance)
                kind = "Allow" if chance.random() < 0.15 else "Disallow"
                lines.append(f"{kind}: {rule}")
                rules.append(rule)
            lines.append("")
        host = f"https://www.site{number}.example"
        lines += [f"Sitemap: {host}/sitemap{n}.xml" for n in range(chance.randint(0, 3))]
        end = chance.choices(["\n", "\r\n"], [7, 3])[0]
        urls = [host + _path(chance, rules) for _ in range(16)]
        yield site(end.join(lines).encode(), "FooBot", urls)


def _rule(chance: random.Random) -> str:
    path = "".join(f"/{chance.choice(WORDS)}" for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))
    kind = chance.random()
    if kind < 0.55:
        return path + "/"
    if kind < 0.75:
        return path
    word = chance.choice(WORDS)
    wildcards = ("/*?{1}=", "/*/{1}/", "{0}/*.{1}$", "/*{1}", "{0}/*", "{0}/*{1}*{2}", "{0}.php$")
    return chance.choice(wildcards).format(path, word, chance.choice(WORDS))


def _path(chance: random.Random, rules: list[str]) -> str:
    if chance.random() < 0.5:
        rule = chance.choice(rules).replace("*", chance.choice(WORDS)).removesuffix("$")
        return rule + chance.choice(("", "page.html", "x", "?a=1"))
    tail = chance.choice(
        ("", "/", ".html", "?page=2", "?color=red&size=10", "/some-long-title-123")
    )
    return "".join(f"/{chance.choice(WORDS)}" for _ in range(chance.randint(1, 4))) + tail


def _our_ready(site: Site) -> RobotsTxt:
    robots = RobotsTxt.parse(site.body)
    robots.allowed(site.urls[0], site.agent)
    return robots


def _protego_ready(site: Site) -> Any:
    robots = Protego.parse(site.text)
    robots.can_fetch(site.urls[0], site.agent)
    return robots


OURS = Way(
    lambda site: RobotsTxt.parse(site.body),
    _our_ready,
    lambda robots, site: [robots.allowed(url, site.agent) for url in site.urls],
)
PROTEGO = Way(
    lambda site: Protego.parse(site.text),
    _protego_ready,
    lambda robots, site: [robots.can_fetch(url, site.agent) for url in site.urls],
)


def measure(ways: list[Way], sites: list[Site], rounds: int) -> list[tuple[float, ...]]:
    """For each way the seconds to parse, to be ready, and to match."""
    ready = [[way.ready(site) for site in sites] for way in ways]
    for way, parsed in zip(ways, ready, strict=True):
        for robots, site_ in zip(parsed, sites, strict=True):
            way.ask(robots, site_)  # whatever is prepared on the first question is prepared now
    times: list[list[tuple[float, ...]]] = [[] for _ in ways]
    gc.collect()
    gc.disable()
    for number in range(rounds):
        # In turns, and the first one in turn too: whoever is second finds a warm machine.
        order = range(len(ways)) if number % 2 else reversed(range(len(ways)))
        for at in order:
            way = ways[at]
            clock = [perf_counter()]
            for site_ in sites:
                way.parse(site_)
            clock.append(perf_counter())
            for site_ in sites:
                way.ready(site_)
            clock.append(perf_counter())
            for robots, site_ in zip(ready[at], sites, strict=True):
                way.ask(robots, site_)
            clock.append(perf_counter())
            times[at].append(tuple(end - start for start, end in pairwise(clock)))
            gc.collect()
    gc.enable()
    return [tuple(map(statistics.median, zip(*rows, strict=True))) for rows in times]


def report(sites: list[Site], rounds: int) -> str:
    ways = [OURS] if Protego is None else [OURS, PROTEGO]
    names = ["scrapy-rep"] if Protego is None else ["scrapy-rep", f"Protego {version('protego')}"]
    times = measure(ways, sites, rounds)
    urls = sum(len(site.urls) for site in sites)
    size = sum(len(site.body) for site in sites)
    (parse, ready, match), *others = times
    rows = [("", *names, "ratio")]

    def row(name: str, count: int, unit: str, ours: float, other: float | None) -> None:
        cells = [f"{seconds / count * 1e6:.2f} us/{unit}" for seconds in (ours, other) if seconds]
        rows.append((name, *cells, f"{other / ours:.1f}x" if other else "-"))

    theirs = others[0] if others else (None, None, None)
    row("parsing", len(sites), "file", ready, theirs[0])
    if others:
        row("parsing, both ready", len(sites), "file", ready, theirs[1])
        row("parsing, neither ready", len(sites), "file", parse, theirs[0])
    row("matching", urls, "URL", match, theirs[2])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in rows
    ]
    head = (
        f"{len(sites)} files ({size:,} bytes), {urls:,} URLs; medians of {rounds} rounds in turns"
    )
    return "\n".join([head, "", *table, "", MEANING if others else SKIPPED])


MEANING = """\
parsing                 bytes in, to ready for an agent: RobotsTxt.parse(body) and the first
                        verdict, which prepares the agent's rules; beside it Protego.parse(text)
                        alone, of text that is decoded already: the comparison that favours Protego
parsing, both ready     the same, and the first verdict of Protego too
parsing, neither ready  RobotsTxt.parse(body) beside Protego.parse(text), no verdict
matching                URL in, verdict out, each URL asked before: allowed() beside can_fetch()"""
SKIPPED = "Protego: skipped, it is not installed"


def positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", metavar="FILE", help="robots.txt files with URLs (.jsonl.gz)")
    parser.add_argument("--rounds", metavar="N", type=positive, default=7)
    options = parser.parse_args()
    sites = list(read(options.corpus) if options.corpus else make())
    print(options.corpus and "Files of the corpus" or "Files made here", end=": ")
    print(report(sites, options.rounds))


if __name__ == "__main__":
    main()
