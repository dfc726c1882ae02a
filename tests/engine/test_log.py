"""What the log has of very many origins, and of a crawl that waits; and how much is remembered."""

from __future__ import annotations

import gc
import logging
import re
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.log import BoundedSet, Isolation, Limiter, get_logger, is_heard
from scrapy_rep.holding import holding
from scrapy_rep.holding.hold import HeldRequests
from scrapy_rep.origins.origins import Origins
from scrapy_rep.protocol import Origin
from scrapy_rep.storages import Entry
from scrapy_rep.text import counted, duration
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.held import HOLD, NEVER, Record, origin_of, silent_until_open, urls
from tests.helpers.log import at_line, lines, remember, summary
from tests.helpers.recorded import context_of
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset
from tests.holding.holds import let_wait


@pytest.mark.parametrize("in_context", [False, True])
def test_the_first_bug_of_each_part_is_logged_and_a_cancellation_raised(
    caplog: pytest.LogCaptureFixture, in_context: bool
) -> None:
    crawler: Any = SimpleNamespace(spider=None)
    isolated = Isolation(crawler)

    def fail(part: str, error: Exception) -> None:
        if in_context:
            with isolated(part):
                raise error
            return
        try:
            raise error
        except (ZeroDivisionError, CancelledError) as caught:
            isolated.contain(part, caught)

    for part in ("count", "file", "count", "file"):
        fail(part, ZeroDivisionError())
    for part in ("count", "file", "report"):
        with pytest.raises(CancelledError):
            fail(part, CancelledError())
    starts = [record.getMessage().split(".")[0] for record in caplog.records]
    assert starts == [
        f"Bug in scrapy-rep: the {part} failed" for part in ("count", "file")
    ]


def test_lines_of_a_kind_are_few(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    limiter = Limiter(get_logger("scrapy_rep.test"), "sites so")
    for number in range(1200):
        limiter.log("Site %(number)d", {"number": number}, None)
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
    assert told == [
        *(f"Site {number}" for number in range(10)),
        "10 sites so so far; others are logged at DEBUG level",
        "100 sites so so far; others are logged at DEBUG level",
        "1,000 sites so so far; others are logged at DEBUG level",
    ]
    assert len(caplog.records) == 1200 + 3


def test_what_was_told_is_told_again_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    limiter = Limiter(get_logger("scrapy_rep.test"), "sites so")
    for about in "aab":
        limiter.log("Site %(one)s", {"one": about}, None, about)
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    more = "; more for this origin at DEBUG level"
    assert told == [
        ("INFO", f"Site a{more}"),
        ("DEBUG", "Site a"),
        ("INFO", f"Site b{more}"),
    ]


def test_no_line_shows_a_password(caplog: pytest.LogCaptureFixture) -> None:
    """Nor do those after the first of an origin, which are cleaned as one text."""
    caplog.set_level("DEBUG")
    limiter = Limiter(get_logger("scrapy_rep.test"), "sites so")
    for number in range(3):
        request = Request(f"http://me:secret@site.example/{number}")
        limiter.log("Refused: %(request)s", {"request": request}, None, "site")
    first, *others = caplog.messages
    assert first.startswith("Refused: <GET http://me:***@site.example/0")
    assert others == [f"Refused: <GET http://me:***@site.example/{n}>" for n in (1, 2)]


def logger_alone(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return a logger without pytest's handlers. No fixture: pytest adds some once fixtures are set up."""
    logger = logging.getLogger("alone")
    logger.setLevel("DEBUG")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "filters", [])
    return logger


@pytest.mark.parametrize(
    ("of_logger", "of_handler", "is_made"),
    [("DEBUG", "DEBUG", True), ("DEBUG", "INFO", False), ("INFO", "DEBUG", False)],
)
def test_a_record_is_made_if_a_handler_takes_it(
    monkeypatch: pytest.MonkeyPatch, of_logger: str, of_handler: str, is_made: bool
) -> None:
    """Scrapy's LOG_LEVEL is its handlers' level; the loggers let all pass. At INFO level, a line that
    nobody sees must not take the time of a record."""
    made: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        made.append(record)
        return False

    alone = logger_alone(monkeypatch)
    alone.setLevel(of_logger)
    alone.addHandler(logging.Handler(of_handler))
    alone.addFilter(keep)
    limiter = Limiter(alone, "sites so")
    for _ in range(2):
        limiter.log("Site", {}, None, "a")
    debug = [record for record in made if record.levelno == logging.DEBUG]
    assert bool(debug) is is_made


def test_a_logger_that_does_not_propagate_is_heard_by_its_own_handlers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = logger_alone(monkeypatch)
    child = logging.getLogger("alone.child")
    assert not is_heard(child, logging.DEBUG)
    alone.addHandler(logging.Handler())
    assert is_heard(child, logging.DEBUG)
    monkeypatch.setattr(child, "propagate", False)
    assert not is_heard(child, logging.DEBUG)
    monkeypatch.setattr(child, "handlers", [logging.Handler(logging.INFO)])
    assert is_heard(child, logging.INFO)
    assert not is_heard(child, logging.DEBUG)


def test_words_for_numbers_and_times() -> None:
    assert [counted(n, "entry", "entries") for n in (0, 1, 2000)] == [
        "0 entries", "1 entry", "2,000 entries",
    ]  # fmt: skip
    assert [duration(one) for one in (-3, 0.2, 40, 480, 9000)] == [
        "0 s", "0 s", "40 s", "8 min", "2 h",
    ]  # fmt: skip


@pytest.mark.usefixtures("in_time")
async def test_a_broad_crawl_does_not_flood_the_log(sites: Sites) -> None:
    forbidding = [sites.add(robots=RULES) for _ in range(12)]
    down = [sites.add(robots=503) for _ in range(12)]
    wanted = [site.url("/private") for site in (*forbidding, *down)]
    site = sites.add()
    names = [f"/s{number}.xml" for number in range(30)]
    listed = "".join(f"Sitemap: {site.url(name)}\n" for name in names)
    site.set("/robots.txt", f"User-agent: *\nDisallow: /s2\n{listed}")
    for name in names:
        site.set(name, urlset([]))
    settings = {**HOLD, "REP_HOLD_MAX_WAIT": 0.5, "REP_SITEMAPS": True}
    result = await crawl([*wanted, site.url("/")], settings)
    with every_row() as row:
        for words, count in {
            "group *): <GET http": 12,
            "is unreachable (": 12,
            "until its robots.txt can be fetched": 12,
            "Gave up ": 12,
            "entries, 0 accepted": 19,
            "was not read: Forbidden": 11,
        }.items():
            with row(words):
                assert len(lines(result, words)) == 10
                assert len(lines(result, words, level=None)) >= count
    assert len(lines(result, "so far; others are logged")) == 6
    assert len(lines(result)) < 75
    assert "12 given up" in summary(result)[1]


def hold_some(table: HeldRequests, origin: Origin, count: int) -> None:
    for number in range(count):
        table.hold_waiting(let_wait(table, origin, number))


def test_the_three_origins_with_most_are_named_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    context = context_of()
    origins = Origins(context)
    table = HeldRequests(context, origins)
    errors = {
        "d": "HTTP 503",
        "c": "CannotResolveHostError: no DNS",
        "b": "Odd: " + "x" * 99,
    }
    for count, name in enumerate("abcd", 1):
        origin = Origin.from_url(f"http://{name}.test/")
        if name in errors:
            entry = Entry(
                str(origin), unreachable_since=1.0, attempts=1, error=errors[name]
            )
            origins.table.put(origin, entry)
        hold_some(table, origin, count)
    caplog.clear()
    holding.HoldLog(context, origins.table).tell_all(
        list(table.queues.values()), 1, 2, idle=False
    )
    assert caplog.messages[0].startswith(
        "10 requests held (4 to http://d.test: HTTP 503; 3 to http://c.test: unknown host; "
        "2 to http://b.test: Odd; 1 to 1 other origin); next robots.txt attempt in 1 s"
    )


async def test_a_line_a_minute_tells_what_is_held(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once when only that is left."""
    monkeypatch.setattr(holding, "_TELL_SECONDS", 0.1)
    page, record = silent_until_open(""), Record()
    site = sites.add(robots=503)
    busy = sites.add(robots=RULES, pages={"/x": page})
    which = f"3 to {origin_of(site)}: HTTP 503"
    line = f"3 requests held ({which}); next robots.txt attempt in 8 min, giving up in 8 min"

    def look() -> None:
        if len(told) == 3:
            page.open()

    began = time.monotonic()
    idle = at_line(
        "scrapy_rep.holding", f"Nothing left to do but wait: {line}", record.close
    )
    with at_line("scrapy_rep.holding", line, look) as told, idle:
        result = await record.crawl(
            [*urls(site, 3), busy.url("/x")],
            REP_RETRY_DELAY=NEVER,
            REP_RETRY_MAX_DELAY=NEVER,
            REP_HOLD_MAX_WAIT=480,
        )
    # However slow the machine is: no line comes before its time.
    assert 3 < len(told) <= 2 + (time.monotonic() - began) / 0.1
    assert len(result.responses) == 1


async def test_reasons_have_scrapys_names_and_no_full_stop(sites: Sites) -> None:
    pytest.importorskip("redis", reason="needs redis, from PyPI")
    site = sites.refused()
    result = await crawl(
        [f"{site}/a", "http://unknown.test/a", "http://unknown.test/b"],
        {
            **HOLD,
            "_REP_HOLD_DEAD_HOST_TRIES": 1,
            "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
            "REP_CACHE_REDIS_URL": f"redis{site.removeprefix('http')}",
        },
    )
    kind = "scrapy.exceptions.CannotResolveHostError"
    robots = result.stat(f"robotstxt/exception_count/<class '{kind}'>")
    assert result.stat(f"downloader/exception_type_count/{kind}") == 2 + robots
    assert lines(result, "is unreachable (DownloadConnectionRefusedError: ")
    assert lines(result, "Connection refused. The crawl goes on", level="WARNING")
    ours = [
        one.getMessage() for one in result.records if one.name.startswith("scrapy_rep")
    ]
    assert not [one for one in ours if re.search(r"\.[.;,)]", one)]


def size_of(thing: object) -> int:
    """The bytes of what *thing* leads to, itself included."""
    sizes: dict[int, int] = {}
    left = [thing]
    while left:
        one = left.pop()
        if id(one) not in sizes and not isinstance(one, type | ModuleType):
            sizes[id(one)] = sys.getsizeof(one)
            left += gc.get_referents(one)
    return sum(sizes.values())


def test_what_is_remembered_takes_little_memory() -> None:
    some = BoundedSet()
    assert all(some.add(f"http://{number}.example") for number in range(400_000))
    assert size_of(some) < 2_200_000
    assert not any(
        some.add(f"http://{number}.example") for number in range(300_000, 400_000)
    )
    assert some.add("http://0.example")


def test_any_hash_can_be_remembered() -> None:
    """Hashes of small numbers are these numbers: neighbours, negative ones, and 0."""
    some = BoundedSet()
    values = [*range(-2000, 2000), 2**61 - 2, -(2**61 - 2)]
    assert [some.add(value) for value in values].count(
        False
    ) <= 1  # -1 and -2 have the same hash
    assert all(value in some for value in values)


@given(st.lists(st.integers(0, 20)), st.integers(1, 5))
def test_the_last_ones_are_remembered(values: list[int], most: int) -> None:
    """So many different ones at least, and at most twice as many."""
    with pytest.MonkeyPatch.context() as patch:
        remember(patch, most)
        some = BoundedSet()
        for at, value in enumerate(values):
            before = list(dict.fromkeys(reversed(values[:at])))
            latest, oldest = before[:most], before[2 * most :]
            assert all(one in some for one in latest)
            assert not any(one in some for one in oldest)
            assert some.add(value) is (value not in latest) or value not in latest
            assert value in some
