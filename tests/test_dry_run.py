"""REP_DRY_RUN: everything is decided, counted and recorded, nothing is dropped or held."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, after, hang_up, in_turn, silence
from tests.helpers.crawling import CrawlResult, StepSpider, crawl
from tests.helpers.held import HOLD, NEVER, Record, assert_clean, origin_of, urls
from tests.helpers.log import lines, summary
from tests.helpers.recorded import decisions
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]
DRY: dict[str, Any] = {**HOLD, "REP_DRY_RUN": True}
NEVER_AGAIN = {"REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}


def assert_all_fetched(result: CrawlResult, wanted: list[str]) -> None:
    assert sorted(result.responses) == sorted(wanted)
    assert result.failures == {}
    assert result.stat("rep/dry_run") is True
    assert_clean(result)


def assert_recorded(path: Path, counts: dict[str, int]) -> None:
    assert all(one["dry_run"] for one in decisions(path))
    assert Counter(one["verdict"] for one in decisions(path)) == counts


async def test_what_is_forbidden_or_would_be_dropped_passes(
    sites: Sites, tmp_path: Path
) -> None:
    site, down, path = (
        sites.add(robots=RULES),
        sites.add(robots=503),
        tmp_path / "d.jsonl",
    )
    wanted = [*urls(site, 3, "/private/"), *urls(site, 2), *urls(down, 5)]
    settings = {**DRY, "REP_UNREACHABLE": "drop", "REP_DECISIONS": str(path)}
    result = await crawl(StepSpider, settings, steps=wanted)
    assert_all_fetched(result, wanted)
    assert result.stat("robotstxt/forbidden") == 3
    assert result.stat("rep/unreachable/dropped") == 5
    assert len(lines(result, "Dry run, not dropped: Forbidden by", level=None)) == 3
    assert len(lines(result, "Dry run, not dropped: ", level=None)) == 8
    assert len(lines(result, "Dry run, not dropped: robots.txt unreachable")) == 1
    assert len(lines(result, "REP_DRY_RUN is on", level="WARNING")) == 1
    would = "Requests, had this not been a dry run: 2 allowed, 3 forbidden, 5 dropped"
    assert summary(result)[1] == f"{would} (robots.txt unreachable)"
    assert_recorded(path, {"disallowed": 3, "unreachable": 5})


async def test_what_would_be_held_passes(sites: Sites, tmp_path: Path) -> None:
    site, record, path = sites.add(robots=503), Record(), tmp_path / "d.jsonl"
    wanted = urls(site, 20)
    settings = {**DRY, **NEVER_AGAIN, "REP_DECISIONS": str(path)}
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert_all_fetched(result, wanted)
    assert (record.held, record.released, record.dropped) == ([], [], [])
    assert result.stat("rep/held") == 20
    assert "rep/held/now" not in result.stats
    assert len(lines(result, f"Would hold requests to {origin_of(site)} until")) == 1
    assert_recorded(path, {"held": 20})
    would = "Requests, had this not been a dry run: 0 allowed, 0 forbidden, 20 held"
    assert summary(result)[1] == would


async def test_the_answer_is_waited_for_within_the_grace(sites: Sites) -> None:
    """In place, as none can be held: also those beyond half of the slots."""
    wanted = urls(sites.add(robots=silence()), 20)
    result = await crawl(
        wanted, {**DRY, "_REP_HOLD_GRACE": 0.2, "REP_DOWNLOAD_TIMEOUT": 0.5}
    )
    assert_all_fetched(result, wanted)
    assert result.stat("rep/held") == 20
    assert len(lines(result, "(no answer yet)")) == 1
    several = [sites.add(robots=after(0.3, RULES)) for _ in range(4)]
    wanted = [url for site in several for url in urls(site, 4, "/private/")]
    result = await crawl(
        wanted, {**DRY, "_REP_HOLD_GRACE": NEVER, "CONCURRENT_REQUESTS": 2}
    )
    assert_all_fetched(result, wanted)
    assert result.stat("robotstxt/forbidden") == 16
    assert "rep/held" not in result.stats


async def test_the_clock_of_an_unreachable_origin_goes_on(sites: Sites) -> None:
    site = sites.add(robots=in_turn(503, RULES), pages={"/0": after(0.2, hang_up())})
    settings = {
        **DRY,
        "REP_RETRY_DELAY": 0.1,
        "REP_RETRY_MAX_DELAY": 0.1,
        "RETRY_ENABLED": False,
    }
    result = await crawl(
        StepSpider, settings, steps=[site.url("/0"), site.url("/private")]
    )
    assert result.responses == {site.url("/private"): 200}
    assert result.stat("rep/held") == 1
    assert result.stat("robotstxt/forbidden") == 1
    assert site.count("/robots.txt") == 2


async def test_what_is_said_of_start_requests_and_bad_urls(sites: Sites) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /")
    result = await crawl(urls(site, 3), DRY)
    assert len(result.responses) == 3
    [line] = lines(result, "every start request", level="WARNING")
    assert line.startswith(
        "robots.txt would have refused every start request (3). A crawl that obeys it may "
        "find nothing."
    )
    # A URL without an origin comes as far as without us.
    result = await crawl("http://:80/x", DRY)
    theirs = await crawl("http://:80/x", {"ROBOTSTXT_OBEY": False})
    assert [*map(type, result.failures.values())] == [
        *map(type, theirs.failures.values())
    ]
    assert result.stat("rep/invalid_url") == 1


async def test_what_an_earlier_run_held_is_let_go(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=503)
    never = {**NEVER_AGAIN, "JOBDIR": str(tmp_path)}
    record = Record(on_held=lambda _, count: record.close() if count == 4 else None)
    held = await crawl(
        urls(site, 4), {**HOLD, **never}, signal_handlers=record.handlers
    )
    assert held.stat("rep/held/now") == 4
    result = await crawl([], {**DRY, **never})
    assert sum(site.count(f"/page{number}") for number in range(4)) == 4
    assert result.stat("rep/given_up") == 0
    assert_clean(result)
