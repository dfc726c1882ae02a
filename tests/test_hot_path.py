"""DESIGN.md, "The hot path is one dictionary look-up and one match": nothing is awaited."""

from __future__ import annotations

import inspect
import sys
import urllib.parse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from scrapy import Request

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol import Origin, RobotsTxt, robotstxt
from scrapy_rep.protocol.matching import Rules
from tests.helpers.crawling import Clock, ListSpider, Step, StepSpider, crawl
from tests.helpers.servers import Sites

pytestmark = pytest.mark.usefixtures("in_time")
RULES = "User-agent: *\nDisallow: /private\nDisallow: /*?secret=\n"
CLOSED = "User-agent: *\nDisallow: /"


class LongWay(Exception):
    """The middleware did what it has no need to do."""


def forbid_the_long_way(patched: pytest.MonkeyPatch) -> None:
    def raiser(*args: Any, **kwargs: Any) -> Any:
        raise LongWay

    patched.setattr(Origin, "from_url", raiser)
    patched.setattr(RobotsTxt, "parse", raiser)
    taking_apart = (
        "urlsplit",
        "urlparse",
        "urljoin",
        "urlparse_cached",
        "safe_url_string",
    )
    for name, module in list(sys.modules.items()):
        if module is urllib.parse or name.split(".")[0] in (
            "scrapy_rep",
            "scrapy",
            "w3lib",
        ):
            for function in taking_apart:
                if function in vars(module):  # hasattr() would call a deprecated one
                    patched.setattr(module, function, raiser)


async def answers(
    warm: list[str], asked: list[str | Request], **warm_with: Any
) -> list[Any]:
    """What the middleware returns at once for *asked*, in a crawl that has requested *warm*."""
    requests = [Request(one) if isinstance(one, str) else one for one in asked]
    found: list[Any] = []

    def ask(spider: ListSpider) -> None:
        if len(spider.responses) + len(spider.errors) < len(warm):
            return
        middleware: Any = spider.crawler.get_downloader_middleware(RepMiddleware)
        with pytest.MonkeyPatch.context() as patched:
            forbid_the_long_way(patched)
            for request in requests:
                try:
                    answer = middleware.process_request(request)
                    if inspect.iscoroutine(answer):
                        answer.send(None)  # it ends here if it suspends nothing
                    found.append(answer)
                except StopIteration as ended:
                    found.append(ended.value)
                except (RobotsDisallowed, RobotsUnreachable) as error:
                    found.append(type(error))

    some = [Request(url, **warm_with) for url in warm]
    one_by_one = {"CONCURRENT_REQUESTS": 1}
    result = await crawl(
        ListSpider, one_by_one, requests=some, on_page=ask, on_failure=ask
    )
    result.assert_clean()
    assert len(found) == len(asked)
    return found


@pytest.mark.scrapy_api
async def test_known_and_fresh(sites: Sites) -> None:
    rules, missing, busy = (sites.add(robots=robots) for robots in (RULES, 404, 503))
    # The long way is taken once for each spelling of an origin, to learn it.
    warm = [
        site.url(f"/{number}") for number in range(2) for site in (rules, missing, busy)
    ]
    allowed: list[str | Request] = [
        *map(rules.url, ("/x", "/", "/x?y=1#z", "/k\u00e4se%2f")),
        Request(rules.url("/x"), headers={"User-Agent": "foobot/1.0"}, meta={"x": 1}),
        missing.url("/private"),
        # The protocol does not concern these.
        Request(rules.url("/private/1"), meta={"dont_obey_robotstxt": True}),
        *(
            "data:text/plain,x",
            "file:///etc/hostname",
            "s3://bucket/key",
            "about:blank",
        ),
    ]
    refused = [rules.url("/private/1"), rules.url("/x?secret=1"), busy.url("/x")]
    got = await answers(warm, [*allowed, *refused])
    assert got == [None] * len(allowed) + [RobotsDisallowed] * 2 + [RobotsUnreachable]


async def test_an_allowed_request_of_a_known_origin_takes_no_closer_look(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = sites.add(robots=RULES)
    monkeypatch.setattr(
        RepMiddleware, "_look_closer", lambda self, request: seen.append(request.url)
    )
    seen: list[str] = []
    settings = {
        "CONCURRENT_REQUESTS": 1,
        "REP_DECISIONS": str(tmp_path / "decisions.jsonl"),
    }
    result = await crawl([site.url(f"/{number}") for number in range(5)], settings)
    assert len(result.responses) == 5
    assert seen == []


async def test_rules_at_hand_are_those_of_the_crawls_own_agent(sites: Sites) -> None:
    site = sites.add(
        robots="User-agent: foobot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /all\n"
    )
    usual: list[dict[str, Any]] = [{}, {"headers": {"Referer": "http://example.com/"}}]
    named: list[dict[str, Any]] = [
        {"headers": {"User-Agent": "foobot/1.0"}},
        {"meta": {"rep_user_agent": "foobot"}},
    ]
    who = [*named, *usual, *named]
    asked = [
        Request(site.url(path), **one) for one in who for path in ("/all", "/x", "/foo")
    ]
    got = await answers([site.url("/0"), site.url("/1")], [*asked], **named[0])
    by_name, by_all = [None, None, RobotsDisallowed], [RobotsDisallowed, None, None]
    assert got == by_name * 2 + by_all * 2 + by_name * 2


@pytest.mark.parametrize(
    ("before", "after"), [(RULES, CLOSED), (RULES, 503), (404, 503)]
)
async def test_rules_at_hand_are_those_of_now(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, before: str | int, after: str | int
) -> None:
    clock = Clock().install(monkeypatch)
    site = sites.add(robots=before)
    urls = [site.url(f"/{number}") for number in range(6)]
    steps: list[Step] = [
        *urls[:3],
        lambda: site.set("/robots.txt", after),
        86401,
        *urls[3:],
    ]
    result = await crawl(
        StepSpider, {"REP_UNREACHABLE": "drop"}, steps=steps, clock=clock
    )
    result.assert_clean()
    stale = (before, after) == (RULES, 503)
    refused = "RobotsUnreachable" if after == 503 else "RobotsDisallowed"
    # An older copy goes on being applied, and each time that is counted.
    assert result.spider.outcomes == ["ok"] * 3 + ["ok" if stale else refused] * 3
    assert result.stat("rep/cache/stale") == 3 * stale
    assert site.count("/robots.txt") == 2


async def test_unknown_and_stale_are_asked_for(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round: this test would see a coroutine."""
    clock = Clock().install(monkeypatch)
    site, other = sites.add(robots=RULES), sites.add(robots=RULES)
    seen: list[Any] = []

    class StaleProbe(ListSpider):
        async def parse(self, response: Any, **kwargs: Any) -> None:
            middleware: Any = self.crawler.get_downloader_middleware(RepMiddleware)
            known, unknown = Request(site.url("/y")), Request(other.url("/y"))
            seen.append(middleware.process_request(known))
            clock.now += 86401
            for request in (known, unknown):
                coroutine = middleware.process_request(request)
                assert inspect.iscoroutine(coroutine)
                seen.append(await coroutine)
            seen.append(middleware.process_request(known))
            clock.now += 86399
            seen.append(middleware.process_request(known))
            # Else it would leave memory as one that nobody asks about.
            seen.append(middleware.origins.table.by_prefix[site.url("/")].used_at)

    result = await crawl(StaleProbe, requests=[site.url("/x")])
    assert seen == [None] * 5 + [clock.now]
    assert [one.count("/robots.txt") for one in (site, other)] == [2, 1]
    result.assert_clean()


async def test_time_per_request_does_not_grow_with_the_file(sites: Sites) -> None:
    """Rules are prepared once for a group, not for each request: counted, not timed."""
    site = sites.add(robots=RULES + "".join(f"Disallow: /{n}/x\n" for n in range(2000)))
    with patch.object(robotstxt, "Rules", wraps=Rules) as prepared:
        result = await crawl([site.url(f"/{number}/x") for number in range(30)])
    assert result.stat("robotstxt/forbidden") == 30
    assert prepared.call_count == 1
    result.assert_clean()
