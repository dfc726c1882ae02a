"""Answers, changes, sitemaps, the crawl on record; at no cost where nobody listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.reporting.record import MAX_CHANGED_LINES, changed_lines, kind_of
from scrapy_rep.reporting.record_file import RecordFile
from tests.helpers.behaviours import RULES, in_turn, redirect
from tests.helpers.crawling import Clock, StepSpider, captured_log, crawl
from tests.helpers.held import HOLD, later, origin_of, urls
from tests.helpers.held import Record as Signals
from tests.helpers.log import lines
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import lists_two
from tests.reporting.conftest import Record

pytestmark = pytest.mark.usefixtures("in_time")
WALL = "<html><title>Just a moment...</title><script src=/cdn-cgi/challenge-platform/x></script>"


@pytest.mark.loop
@pytest.mark.download
@pytest.mark.scrapy_api
async def test_each_answer_is_on_record(sites: Sites, record: Record) -> None:
    answers: dict[str, Any] = {
        "rules": RULES,
        "empty": "# nothing\n\n",
        "html": "<!DOCTYPE html><title>Hello</title><p>A page",
        "challenge": WALL,
        "missing": 404,
        "redirected": redirect("/robots.txt"),
        "unreachable": in_turn(503, 503, RULES),
    }
    town = {name: sites.add(robots=robots) for name, robots in answers.items()}
    refused, own = sites.refused(), sites.add()
    wanted = [*(site.url("/x") for site in (*town.values(), own)), f"{refused}/x"]
    settings = {
        **HOLD,
        "_REP_HOLD_DEAD_HOST_TRIES": 1,
        "REP_OVERRIDES": {own.host: None},
    }
    crawled = await record(wanted, settings)
    found: dict[str, list[dict[str, Any]]] = {}
    for line in crawled.of("answer"):
        found.setdefault(line["origin"], []).append(line["answer"])
    told = {name: found[origin_of(site)] for name, site in town.items()}
    assert [one["outcome"] for one in told.pop("unreachable")] == [
        "unreachable"
    ] * 2 + ["rules"]
    assert {name: [one["outcome"] for one in told[name]] for name in told} == {
        name: [name] for name in told
    }
    for site in (*town.values(), own):
        fetches = sum(one["fetches"] for one in found[origin_of(site)])
        assert fetches == site.count("/robots.txt")
    every = [one for some in found.values() for one in some]
    assert all((one["asked"] is None) == (one["fetches"] == 0) for one in every)
    [dead] = found[refused]
    assert (dead["kind"], dead["attempts"]) == ("refused", 1)
    assert (
        crawled.result.stat("robotstxt/request_count")
        == sum(map(len, found.values())) - 1
    )


async def test_what_the_project_prevents_is_on_record(record: Record) -> None:
    crawled = await record(["ftp://127.0.0.1/x"], {"DOWNLOAD_HANDLERS": {"ftp": None}})
    [line] = crawled.of("answer")
    assert (line["answer"]["outcome"], line["answer"]["kind"]) == (
        "none",
        "configuration",
    )


@pytest.mark.scrapy_api
async def test_a_crawl_is_on_record_from_its_beginning_to_its_end(
    sites: Sites, record: Record
) -> None:
    site, secret = sites.add(robots=RULES), "redis://me:secret@127.0.0.1"
    wanted = [*urls(site, 7), site.url("/private")]
    found = await record(wanted, {"REP_CACHE_REDIS_URL": secret})
    first, *_, last = found.lines
    assert len({one["crawl"] for one in found.lines}) == 1
    assert (first["verdict"], last["verdict"], last["reason"]) == (
        "crawl_started", "crawl_ended", "finished",
    )  # fmt: skip
    assert first["settings"]["agent"] == "testbot"
    assert (
        first["settings"]["changed"]["REP_CACHE_REDIS_URL"]
        == "redis://me:***@127.0.0.1"
    )
    [allowed] = found.of("allowed_count")
    assert (allowed["origin"], allowed["count"]) == (origin_of(site), 7)
    counts = last["counts"]
    assert (counts["allowed"], counts["forbidden"], counts["fetches"]) == (7, 1, 1)
    assert found.told("verdict") == [("disallowed",)]


async def test_what_comes_after_the_end_is_not_on_record(
    sites: Sites, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await record([sites.add().url("/x")])
    middleware = found.result.spider.crawler.get_downloader_middleware(RepMiddleware)
    assert middleware is not None
    monkeypatch.setattr(RecordFile, "add", None)
    with captured_log() as records:
        middleware.decisions.tell("late", None, None)
    assert records == []


async def test_without_a_listener_no_record_is_made(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.reporting.recorder.fields_of", None)
    monkeypatch.setattr("scrapy_rep.reporting.recorder.answer_fields", None)
    site, down = sites.add(robots=RULES), sites.add(robots=503)
    result = await crawl([site.url("/x"), site.url("/private"), down.url("/x")])
    result.assert_clean()
    assert len(result.failures) == 2


async def test_allows_are_counted_though_origins_are_forgotten(
    sites: Sites, record: Record
) -> None:
    town = [sites.add(robots=RULES) for _ in range(5)]
    steps = [site.url(f"/{number}") for number in range(4) for site in town]
    found = await record(StepSpider, {"REP_CACHE_MAX_ORIGINS": 2}, steps=steps)
    assert sum(one["count"] for one in found.of("allowed_count")) == 20


async def test_what_was_released_says_how_long_it_was_held(
    sites: Sites, record: Record, tmp_path: Path
) -> None:
    site = sites.add(robots=503)
    settings = {**HOLD, "JOBDIR": str(tmp_path / "job")}
    # The seconds that are told: a crawl's own clock is the event loop's.
    signals = Signals(on_held=lambda *_: later(0.5, signals.close))
    await record([site.url("/x")], settings, signal_handlers=signals.handlers)
    site.set("/robots.txt", RULES)
    found = await record([], settings)
    [released] = found.of("released")
    assert released["held_for"] >= 0.5
    [line] = lines(found.result, "Released 1 request to ")
    assert float(line.split(" after ")[1].split()[0]) >= 0.5


async def test_a_change_in_mid_crawl_is_told(
    sites: Sites, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock().install(monkeypatch)
    site = sites.add(robots="User-agent: *\nDisallow: /a\nDisallow: /c\n")
    same, down = sites.add(robots=RULES), sites.add(robots=in_turn(404, 503))
    new = "User-agent: *\nDisallow: /b\r\nDisallow: /c\n"
    steps = [
        *(site.url(path) for path in ("/a", "/b", "/c")), same.url("/x"), down.url("/x"),
        lambda: site.set("/robots.txt", new), 86401,
        site.url("/b/1"), same.url("/x1"), down.url("/x1"),
    ]  # fmt: skip
    found = await record(StepSpider, steps=steps, clock=clock)
    [line] = found.of("changed")
    change = line["change"]
    assert (change["added"], change["removed"]) == (["Disallow: /b"], ["Disallow: /a"])
    turned = [(one["url"], one["was"], one["now"]) for one in change["turned"]]
    assert turned == [
        (site.url("/a"), "disallowed", "allowed"),
        (site.url("/b/1"), "allowed", "disallowed"),
    ]
    assert change["turned_count"] == 2
    [told] = lines(found.result, "has changed")
    what = f"lines added 1, removed 1, verdicts that turn 2: {site.url('/a')} is now allowed"
    assert told == f"robots.txt of {origin_of(site)} has changed: {what}"
    assert found.result.stat("rep/changed") == 1


def test_lines_that_were_moved_have_not_changed() -> None:
    same = changed_lines(b"a\nb\r\nb\n\n", b"\xef\xbb\xbfb\rb\ra"[3:])
    assert (same["lines_added"], same["lines_removed"]) == (0, 0)
    many = b"".join(b"Disallow: /%d\n" % number for number in range(30_000))
    much = changed_lines(many, b"")
    assert (much["lines_removed"], len(much["removed"])) == (30_000, MAX_CHANGED_LINES)


async def test_each_sitemap_is_on_record(sites: Sites, record: Record) -> None:
    site = lists_two(sites.add())
    crawled = await record([site.url("/")], {"REP_SITEMAPS": True})
    found = {one["url"]: one for one in crawled.of("sitemap")}
    read, failed = (
        found[site.url("/a.xml")]["sitemap"],
        found[site.url("/gone.xml")]["sitemap"],
    )
    about = [read[name] for name in ("found", "kind", "entries", "taken")]
    assert about == ["listed", "urlset", 3, 2]
    assert sum(read["rejected"].values()) == 1
    assert failed["failed"] == "HTTP 404"
    assert {one["origin"] for one in found.values()} == {origin_of(site)}


def test_why_it_is_unreachable_in_a_word_or_two() -> None:
    """As text, which other processes store, too."""
    failed = "DownloadFailedError: [<twisted.python.failure.Failure {}>]"
    for reason, kind in {
        "HTTP 403, REP_FORBIDDEN is 'hold'": "HTTP 403",
        "CannotResolveHostError: a.example": "unknown host",
        failed.format(
            "OpenSSL.SSL.Error: [('SSL routines', '', 'wrong version number')]"
        ): "TLS",
        failed.format(
            "twisted.internet.error.ConnectionDone: Closed."
        ): "connection lost",
        "Odd: a story": "Odd",
        None: "other",
    }.items():
        assert kind_of(reason) == kind
