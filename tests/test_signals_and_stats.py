"""DESIGN.md, "Exceptions, signals, stats, meta": what a project sees of all this."""

from __future__ import annotations

import re
from time import time
from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DownloadConnectionRefusedError, IgnoreRequest
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from scrapy_rep import signals
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol import Decision, Origin, RobotsTxt, Rule
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from tests.helpers.behaviours import redirect
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, StepSpider, crawl
from tests.helpers.held import Record, a_while
from tests.helpers.recorded import Resolved
from tests.helpers.servers import Sites

pytestmark = pytest.mark.usefixtures("in_time")
RULES = "User-agent: *\nDisallow: /private\nCrawl-delay: 3\n"


def stats_of(result: CrawlResult, *prefixes: str) -> dict[str, Any]:
    return {
        name: value for name, value in result.stats.items() if name.startswith(prefixes)
    }


@pytest.mark.scrapy_api
async def test_all_stats_of_a_crawl(sites: Sites) -> None:
    """Those of the built-in middleware keep their names and meaning: dashboards go on working."""
    rules, missing, busy = sites.add(), sites.add(robots=404), sites.add(robots=503)
    rules.set("/robots.txt", f"{RULES}Sitemap: {rules.url('/map.xml')}")
    moved = sites.add(robots=redirect(rules.url("/rules")))
    rules.set("/rules", RULES)
    steps = [
        site.url(path)
        for site in (rules, missing, busy)
        for path in ("/private", "/x", "/y")
    ]
    steps += [moved.url("/private"), sites.refused() + "/x", "http://:80/x"]
    result = await crawl(StepSpider, ONE_ATTEMPT, steps=steps)
    built_in = {
        "robotstxt/request_count": 5,  # a robots.txt that moved counts once
        "robotstxt/response_count": 4,
        "robotstxt/response_status_count/200": 2,
        "robotstxt/response_status_count/404": 1,
        "robotstxt/response_status_count/503": 1,
        f"robotstxt/exception_count/{DownloadConnectionRefusedError}": 1,
        "robotstxt/forbidden": 2,
    }
    settings = {"ADDONS": {}, "ROBOTSTXT_OBEY": True}
    theirs = await crawl(StepSpider, settings, steps=steps[:-1])
    assert stats_of(theirs, "rep/", "robotstxt/") == built_in
    assert (
        stats_of(result, "rep/", "robotstxt/")
        == {
            **built_in,
            "rep/outcome/rules": 2,
            "rep/outcome/missing": 1,
            "rep/outcome/unreachable": 2,
            "rep/cache/miss": 5,
            "rep/cache/hit": 11,  # those that waited, too: they are decided once the answer is there
            "rep/unreachable/dropped": 4,
            "rep/invalid_url": 1,
            "rep/sitemaps/found": 1,
        }
    )
    result.assert_clean()


def test_what_is_counted_for_each_request_is_in_scrapys_stats_at_once() -> None:
    """Also after a project has replaced them as a whole; a collector of its own is
    asked itself."""
    crawler = get_crawler()
    assert crawler.stats is not None
    count = CrawlContext(
        crawler, RepSettings.from_settings(crawler.settings), time
    ).count
    count("a")
    count("a")
    assert crawler.stats.get_value("a") == 2
    crawler.stats.set_stats({"a": 7})
    count("a")
    crawler.stats.inc_value("a")
    assert crawler.stats.get_stats() == {"a": 9}

    class ProjectStats(MemoryStatsCollector):
        def inc_value(self, key: str, *args: Any, **more: Any) -> None:
            super().inc_value(f"mine/{key}", *args, **more)

    crawler = get_crawler(settings_dict={"STATS_CLASS": ProjectStats})
    assert crawler.stats is not None
    context = CrawlContext(crawler, RepSettings.from_settings(crawler.settings), time)
    context.count("a")
    assert crawler.stats.get_value("mine/a") == 1


async def test_robots_resolved_is_sent_with_each_answer(sites: Sites) -> None:
    plain, missing, busy = (sites.add(robots=robots) for robots in (RULES, 404, 503))
    moved = sites.add(robots=redirect("/here"), pages={"/here": RULES})
    roots = [site.url("") for site in (plain, missing, busy, moved)] + [sites.refused()]
    resolved = Resolved()
    steps = [f"{root}/x" for root in roots]
    result = await crawl(StepSpider, steps=steps, signal_handlers=resolved.handlers)
    robots = [one.pop("robots") for one in resolved.all]
    assert [isinstance(one, RobotsTxt) for one in robots] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert robots[1] is robots[2] is robots[4] is None
    assert not robots[0].allowed(plain.url("/private"), "testbot")
    errors = [one.pop("error") for one in resolved.all]
    assert errors[:4] == [None] * 4
    assert re.search(
        "refused|Connect call failed", errors[4]
    )  # the latter without a reactor
    expected = [
        (Outcome.RULES, 200, f"{roots[0]}/robots.txt", 0, 0),
        (Outcome.MISSING, 404, f"{roots[1]}/robots.txt", 0, 0),
        (Outcome.UNREACHABLE, 503, f"{roots[2]}/robots.txt", 0, 1),
        (Outcome.RULES, 200, moved.url("/here"), 1, 0),
        (Outcome.UNREACHABLE, None, f"{roots[4]}/robots.txt", 0, 1),
    ]
    names = ("outcome", "status", "url", "hops", "attempts")
    assert [tuple(one.pop(name) for name in names) for one in resolved.all] == expected
    for got, root in zip(resolved.all, roots, strict=True):
        assert (got.pop("origin"), got.pop("spider")) == (
            Origin.from_url(root),
            result.spider,
        )
        assert got.keys() == {"signal", "sender"}
    result.assert_clean()


async def test_a_slow_handler_is_not_cut_short(sites: Sites) -> None:
    """What waits for it longer than the grace is decided by the answer that is there."""
    site, order, record = sites.add(), [], Record()
    site.set("/robots.txt", f"{RULES}Sitemap: {site.url('/map.xml')}")

    async def on_resolved(origin: Origin) -> None:
        while "page" not in order:
            await a_while(0.01)
        await a_while(0.05)
        order.append("told")

    record.handlers[signals.robots_resolved] = on_resolved
    record.handlers[signals.sitemap_discovered] = lambda url: order.append("sitemap")
    result = await record.crawl(
        site.url("/x"), _REP_HOLD_GRACE=0.3, on_page=lambda _: order.append("page")
    )
    assert order == ["sitemap", "page", "told"]
    assert record.held == record.released == []
    assert result.reason == "finished"
    result.assert_clean()


async def test_a_handler_that_raises_does_no_harm(sites: Sites) -> None:
    site = sites.add()
    site.set("/robots.txt", f"{RULES}Sitemap: {site.url('/map.xml')}")

    def broken(**kwargs: Any) -> None:
        raise ZeroDivisionError

    handlers = dict.fromkeys(
        [signals.robots_resolved, signals.sitemap_discovered], broken
    )
    result = await crawl(
        [site.url("/private"), site.url("/x")], signal_handlers=handlers
    )
    assert result.responses == {site.url("/x"): 200}
    assert result.disallowed(site.url("/private"))
    assert result.log.count("Error caught on signal handler") == 2


@pytest.mark.skipif(not hasattr(scrapy_signals, "robots_parsed"), reason="older Scrapy")
async def test_scrapys_robots_parsed_is_sent_once_per_parsed_file(sites: Sites) -> None:
    site, others = (
        sites.add(robots=RULES),
        [sites.add(robots=404), sites.add(robots=503)],
    )
    got: list[Any] = []

    def on_parsed(robotparser: Any, request: Request) -> None:
        got.append((robotparser, request))

    steps = [site.url("/x"), site.url("/y"), *(other.url("/x") for other in others)]
    handlers = {scrapy_signals.robots_parsed: on_parsed}
    result = await crawl(StepSpider, steps=steps, signal_handlers=handlers)
    [(parser, request)] = got
    assert request.url == site.url("/x")
    assert parser.crawl_delay("testbot") == 3.0
    assert parser.allowed(site.url("/x"), "testbot")
    assert not parser.allowed(site.url("/private").encode(), b"testbot/1.0")
    result.assert_clean()


async def test_robots_disallowed_names_the_line_that_decided(sites: Sites) -> None:
    rules = "# 1\nUser-agent: other\nDisallow:\n\nUser-agent: *\nAllow: /\nDisallow: /a*z$\n"
    site = sites.add(robots=rules)
    result = await crawl(
        [site.url("/abcz"), site.url("/aXz")], {"CONCURRENT_REQUESTS": 1}
    )
    error = result.failure(site.url("/abcz"))
    assert isinstance(error, RobotsDisallowed)
    assert issubclass(RobotsDisallowed, IgnoreRequest)
    assert issubclass(RobotsUnreachable, IgnoreRequest)
    assert error.origin == Origin.from_url(site.url())
    assert error.decision == Decision(False, Rule(7, "/a*z$", False), "*")
    message = "Forbidden by robots.txt (line 7: Disallow: /a*z$, group *)"
    assert str(error) == message
    [_, record] = [
        one for one in result.records if one.getMessage().startswith("Forbidden")
    ]
    assert record.getMessage() == f"{message}: <GET {site.url('/aXz')}>"
    assert (record.levelname, record.spider) == ("DEBUG", result.spider)  # type: ignore[attr-defined]
    result.assert_clean()


async def test_robots_unreachable_gives_reason_and_attempts(sites: Sites) -> None:
    site = sites.add(robots=503)
    urls = [site.url("/x"), site.url("/y")]
    result = await crawl(StepSpider, ONE_ATTEMPT, steps=[*urls])
    for url in urls:
        error = result.failure(url)
        assert isinstance(error, RobotsUnreachable)
        assert (error.origin, error.decision) == (Origin.from_url(site.url()), None)
        assert (error.reason, error.attempts) == ("HTTP 503", 1)
        assert str(error) == "robots.txt unreachable: HTTP 503"
        assert result.log.count(f"{error}: <GET {url}>") == 1
    # The first failure of a row is news.
    news = (
        f"INFO robots.txt of {Origin.from_url(site.url())} is unreachable (HTTP 503); "
    )
    assert result.log.count(news) == 1
    assert "ERROR" not in result.log
    result.assert_clean()
