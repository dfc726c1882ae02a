"""Memory has a limit in bytes, whatever sites send; ordinary sites don't pay for hostile ones."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.seeding.discovery import MAX_SITEMAPS, Discovery
from scrapy_rep.storages import Entry, MemoryStorage
from tests.helpers.behaviours import answer, in_turn, redirect
from tests.helpers.crawling import StepSpider, crawl
from tests.helpers.held import HOLD, origin_of
from tests.helpers.log import remember
from tests.helpers.recorded import Discovered, context_of, lines_of
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, listing, urlset
from tests.helpers.storing import FAILURE, NOW, rules, state_with

pytestmark = pytest.mark.slow
SIZE = 16_000
"""Bytes of a large file: a thirtieth of what is read, to be quick."""
MOST_COUNTED = 1.5 if sys.version_info < (3, 14) else 2.0
"""How many times as much may be counted as is taken. Since Python 3.14, objects and compiled patterns are
smaller, so that more is counted than before: limits are reached earlier, never later."""
random = Random(1)


def noise(size: int = SIZE) -> bytes:
    return random.randbytes(size)


def letters(count: int) -> bytes:
    return bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz-/", k=count))


def many(line: Callable[[int], bytes], size: int = SIZE) -> bytes:
    text = bytearray(b"User-agent: *\n")
    while len(text) < size:
        text += line(len(text)) + b"\n"
    return bytes(text)


ORDINARY = (
    b"# A shop\nUser-agent: *\nDisallow: /cart/\nDisallow: /checkout/\nDisallow: /*?sort=\n"
    b"Allow: /checkout/help\nDisallow: /private$\n\nUser-agent: testbot\nDisallow: /search\n"
    b"\nSitemap: https://www.example.com/sitemap.xml\n"
)

KINDS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "ordinary": lambda: ORDINARY,
    "noise": noise,
    "short rules": lambda: many(lambda n: b"Disallow: /%x" % n),
    "rules": lambda: many(lambda n: b"Disallow: /" + letters(30)),
    "long rules": lambda: many(lambda n: b"Disallow: /" + letters(3000)),
    "equal rules": lambda: many(lambda n: b"Disallow: /x"),
    "nested rules": lambda: many(lambda n: b"Disallow: /" + b"a" * (n // 50)),
    "escaped rules": lambda: many(lambda n: b"Disallow: /%x\xff\xfe\xff\xff\xff" % n),
    "wildcards": lambda: many(lambda n: b"Disallow: /*" + letters(12)),
    "long wildcards": lambda: many(lambda n: b"Disallow: /*" + letters(3000)),
    "wildcards behind a path": lambda: many(
        lambda n: b"Allow: /%x/*%s$" % (n, letters(8))
    ),
    "exact paths": lambda: many(lambda n: b"Disallow: /" + letters(12) + b"$"),
    "directories": lambda: many(lambda n: b"Allow: /%x/index.html" % n),
    "sitemaps": lambda: many(lambda n: b"Sitemap: /%x" % n),
    "agents": lambda: many(lambda n: b"User-agent: a%x\nDisallow: /%x" % (n, n)),
}


def known_of(number: int, body: bytes, **values: Any) -> OriginState:
    origin = Origin("https", f"www.site-{number}.example", 443)
    known = state_with(rules(str(origin), body, NOW + number, **values), origin)
    assert known.robots is not None
    known.robots.preload(body, "testbot")
    return known


def assert_honest(make: Callable[[], Any], counted: Callable[[Any], int]) -> None:
    """What is counted is about what it takes. No server runs meanwhile."""
    make()  # what is made once, for all
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        took = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    count = counted(made)
    assert took / 1.5 < count < took * MOST_COUNTED, (
        f"{count:,} bytes are counted, {took:,} were taken"
    )


def assert_states_honest(make: Callable[[], list[OriginState]]) -> None:
    assert_honest(
        lambda: {known.name: known for known in make()},
        lambda made: sum(map(bytes_of, made.values())),
    )


def bytes_of(known: OriginState) -> int:
    parsed_bytes = known.robots.size if known.robots is not None else 0
    return known.unparsed_bytes + parsed_bytes


def test_what_is_counted_is_what_it_takes() -> None:
    with every_row() as row:
        for kind, make in KINDS.items():
            with row(kind):
                small = len(zlib.compress(make())) < 2000
                bodies = [make() for _ in range(20 if small else 2)]

                def parsed(bodies: list[bytes] = bodies) -> list[OriginState]:
                    return [
                        known_of(number, body) for number, body in enumerate(bodies)
                    ]

                def packed(bodies: list[bytes] = bodies) -> MemoryStorage:
                    storage = MemoryStorage(1000, 1 << 30)
                    for number, body in enumerate(bodies):
                        storage.save(
                            rules(
                                f"https://www.site-{number}.example", body, NOW + number
                            )
                        )
                    return storage

                assert_states_honest(parsed)
                assert_honest(packed, lambda storage: storage._bytes)


def test_long_texts_and_failures_are_counted() -> None:
    def parsed() -> list[OriginState]:
        made = [
            known_of(n, ORDINARY, url="http://x.example/" + "x" * 8000)
            for n in range(10)
        ]
        made += [
            known_of(10 + n, b"", **{**FAILURE, "error": "e" * 8000}) for n in range(10)
        ]
        origins = [Origin("http", f"{n}.example", 80) for n in range(10)]
        return made + [
            state_with(Entry(str(one), NOW, **FAILURE), one) for one in origins
        ]

    assert_states_honest(parsed)


@pytest.mark.parametrize(("agents", "lines"), [(29, 0), (1, 600)])
def test_agents_and_lines_that_decided_are_counted(agents: int, lines: int) -> None:
    """A group is prepared for each agent that it names; a line that decided is remembered."""
    names = ["a" * n for n in range(1, agents + 1)]
    group = b"".join(b"User-agent: %s\n" % name.encode() for name in names)
    rest = many(lambda n: b"Disallow: /%x/" % n, 12_000).partition(b"\n")[2]
    last = [line.decode().partition(": ")[2] for line in rest.splitlines()[-lines:]]

    def asked() -> RobotsTxt:
        robots = RobotsTxt.parse(group + rest)
        for name in names:
            assert robots.allowed("/x", name)
        for path in last[:lines]:
            assert not robots.decide(path + "x", "a").allowed
        return robots

    assert_honest(asked, lambda robots: robots.size)


def test_agents_without_end_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_rep.protocol.robotstxt._MAX_SIZE", 200_000)
    agents = ["a" * n for n in range(1, 90)]
    group = b"".join(b"User-agent: %s\n" % agent.encode() for agent in agents)
    robots = RobotsTxt.parse(
        group + b"".join(b"Disallow: /%d/\n" % n for n in range(1000))
    )
    for agent in [*agents, *agents]:
        assert not robots.allowed("/7/", agent)
        assert robots.allowed("/7", agent)
        assert robots.size < 300_000
    assert robots.decide("/7/", "a").rule is not None


class Weighed(StepSpider):
    """Looks at the end how many bytes the crawl has kept since its first request."""

    def following(self) -> Any:
        if not tracemalloc.is_tracing():
            gc.collect()
            tracemalloc.start()
        elif not self.steps:
            gc.collect()
            self.kept = tracemalloc.get_traced_memory()[0]
        return super().following()


BUDGET = {"_REP_CACHE_MAX_BYTES": 2_000_000}


def noisy(sites: Sites) -> tuple[list[Site], list[Site]]:
    """Five megabytes that don't compress. Ordinary sites, used longer ago, don't pay for it."""
    ordinary = [sites.add(robots=answer(ORDINARY)) for _ in range(20)]
    return [
        *ordinary,
        *(sites.add(robots=answer(noise(500_000))) for _ in range(10)),
    ], ordinary


def heavy(sites: Sites) -> tuple[list[Site], list[Site]]:
    """Parsed they take five megabytes, packed a sixth of one: none is fetched again."""
    body = many(lambda n: b"Disallow: /%x" % n, 40_000)
    found = [sites.add(robots=answer(body)) for _ in range(12)]
    return found, found


def far_away(sites: Sites) -> tuple[list[Site], list[Site]]:
    """Each hop adds a long path: not only entries keep it, urlsplit() has its last 128 URLs."""
    found = [sites.add() for _ in range(20)]
    for site in found:
        path, folder = "/robots.txt", "/"
        for _ in range(5):
            site.set(path, redirect('"' * 8_000 + "/"))
            path = folder = folder + "%22" * 8_000 + "/"
        site.set(path, "User-agent: *\nDisallow: /x\n")
    return found, []


@pytest.mark.parametrize(
    ("make", "times", "most"),
    [(noisy, 2, 3_000_000), (heavy, 2, 3_000_000), (far_away, 1, 4_000_000)],
)
async def test_what_a_crawl_keeps(
    sites: Sites, make: Any, times: int, most: int
) -> None:
    some, once = make(sites)
    try:
        result = await crawl(
            Weighed, BUDGET, steps=[one.url("/page") for one in some] * times
        )
    finally:
        tracemalloc.stop()
    assert isinstance(result.spider, Weighed)
    assert result.spider.outcomes == ["ok"] * len(some) * times
    assert result.spider.kept < most
    assert [one.robots_fetches for one in once] == [1] * len(once)


async def test_one_that_is_larger_than_the_limit(sites: Sites) -> None:
    large, small = sites.add(robots=answer(noise())), sites.add(robots=answer(ORDINARY))
    pages = [site.url(f"/{n}") for n in range(5) for site in (large, large, small)]
    forbidden = small.url("/search")
    result = await crawl(
        StepSpider, {"_REP_CACHE_MAX_BYTES": 1}, steps=[*pages, forbidden]
    )
    assert result.spider.outcomes == ["ok"] * 15 + ["RobotsDisallowed"]  # type: ignore[attr-defined]
    assert (large.robots_fetches, small.robots_fetches) == (1, 1)


async def test_requests_that_wait_do_not_lose_their_origin(
    sites: Sites, tmp_path: Path
) -> None:
    """Its failures count, and its back-off grows, until it answers; the answer may be forgotten."""
    waiting = sites.add(robots=in_turn(503, 503, 503, ORDINARY))
    noisy = [sites.add(robots=answer(noise())) for _ in range(20)]
    pages = [
        waiting.url("/search"),
        waiting.url("/x"),
        *[site.url("/x") for site in noisy],
    ]
    record = tmp_path / "decisions.jsonl"
    result = await crawl(
        pages, {**HOLD, "_REP_CACHE_MAX_BYTES": 1, "REP_DECISIONS": record}
    )
    result.assert_clean()
    assert result.status(waiting.url("/x")) == 200
    assert type(result.failure(waiting.url("/search"))).__name__ == "RobotsDisallowed"
    answers = [
        one for one in lines_of(record, "answer") if one["origin"] == origin_of(waiting)
    ]
    assert [one["answer"]["attempts"] for one in answers[:4]] == [1, 2, 3, 0]
    assert result.stat("rep/released") >= 2


async def test_the_sitemaps_of_many_robots_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(monkeypatch, 1000)
    context = context_of()
    discovery = Discovery(context)
    for number in range(4):
        origin = Origin("http", f"{number}.example", 80)
        robots = RobotsTxt.parse(
            b"".join(b"Sitemap: /%d.xml\n" % n for n in range(MAX_SITEMAPS))
        )
        state: Any = SimpleNamespace(
            origin=origin, robots_url=origin.robots_url, robots=robots
        )
        for _ in range(2):  # the second time is a day later
            await discovery.announce(state)
    assert context.stats.get_value("rep/sitemaps/found") == 4 * MAX_SITEMAPS
    seen = discovery._counted_urls
    assert seen._new.count + seen._old.count <= 2000


async def test_what_is_forgotten_seeds_once_all_the_same(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool knows what it has. An origin that answers after it was forgotten seeds as well."""
    remember(monkeypatch, 1)
    monkeypatch.setattr("scrapy_rep.seeding.seeding._MAX_VISITED_PREFIXES", 1)
    many = [sites.add() for _ in range(10)]
    for number, site in enumerate(many):
        file = listing(site.url("/map.xml"))
        site.set("/robots.txt", in_turn(503, file) if number < 3 else file)
        site.set("/map.xml", urlset([site.url(f"/{n}") for n in range(3)]))
    discovered = Discovered()
    result = await crawl(
        SeededSpider,
        {**HOLD, "REP_SITEMAPS": True},
        requests=[site.url(path) for path in ("/a", "/b") for site in many],
        signal_handlers=discovered.handlers,
    )
    result.assert_clean()
    for site in many:
        assert sorted(site.pages_asked) == ["/0", "/1", "/2", "/a", "/b", "/map.xml"]
    assert sorted(discovered.urls) == sorted(site.url("/map.xml") for site in many)
