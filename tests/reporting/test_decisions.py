"""What the log tells of decisions: the first refusal of an origin, start requests that were all
refused, and a summary at the end. In real crawls."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from scrapy import Request, Spider

from scrapy_rep.engine import log
from tests.helpers.behaviours import in_turn, silence
from tests.helpers.crawling import AGENT, ListSpider, StepSpider, crawl
from tests.helpers.held import DEFER, NEVER, Record, as_soon_as, assert_clean, origin_of, urls
from tests.helpers.log import lines, summary
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_time")]

RULES = "User-agent: *\nDisallow: /private\nDisallow: /x\n"


# -- the first of an origin ------------------------------------------------------------------


async def test_the_first_that_is_forbidden_of_each_origin(sites: Sites) -> None:
    some = [sites.add(robots=RULES) for _ in range(3)]
    wanted = [site.url(f"{path}{n}") for site in some for n in range(5) for path in ("/x", "/y")]
    result = await crawl(wanted)
    told = lines(result, "forbids")
    assert len(told) == 3
    for site in some:
        [line] = [one for one in told if origin_of(site) in one]
        url = line.split(" forbids ")[1].split(" ")[0]
        assert url in wanted
        assert line == (
            f"robots.txt of {origin_of(site)} forbids {url} (line 3: Disallow: /x, group *); more "
            "for this origin at DEBUG level"
        )
    # And no second line for the first.
    assert len(lines(result, "Forbidden by robots.txt (line 3: ", level="DEBUG")) == 12
    assert len(lines(result)) == 3
    assert_clean(result)


async def test_the_first_that_is_dropped_of_each_origin(sites: Sites) -> None:
    site = sites.add(robots=503)
    result = await crawl(urls(site, 20))  # REP_UNREACHABLE is "drop"
    [line] = lines(result, "Dropping requests")
    assert line == f"Dropping requests to {origin_of(site)}: robots.txt unreachable: " + (
        "HTTP 503"
    )
    assert len(lines(result, "Dropped: ", level="DEBUG")) == 20
    assert_clean(result)


async def test_a_forgotten_origin_is_told_of_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better than memory without end."""
    monkeypatch.setattr(log, "_REMEMBERED", 1)
    first, second, third = some = [sites.add(robots=RULES) for _ in range(3)]
    steps = [site.url("/x") for site in (first, first, second, third, first)]
    result = await crawl(StepSpider, steps=steps)
    told = [line.split()[2] for line in lines(result, "forbids")]
    assert told == [origin_of(site) for site in (*some, first)]


# -- all start requests refused --------------------------------------------------------------


async def test_every_start_request_is_forbidden(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl([site.url("/private/it's"), site.url("/x")], {"CONCURRENT_REQUESTS": 1})
    url = f"{origin_of(site)}/private/it's"
    quoted = shlex.quote(url)
    assert quoted.startswith("'")
    [line] = lines(result, "every start request", level="WARNING")
    assert line == (
        "robots.txt refused every start request (2). If the crawl found nothing, that is why; your "
        f"spider may be fine. The first was {url}: Forbidden by robots.txt "
        "(line 2: Disallow: /private, group *). For details: scrapy robots --explain "
        f"--agent {AGENT} {quoted}"
    )
    assert_clean(result)


@pytest.mark.parametrize(
    ("agent", "suggested"),
    [("OtherBot", "OtherBot"), (["Other-Image", "Other"], "Other-Image,Other"), (None, "'*'")],
)
async def test_the_suggested_command_names_the_agent_of_the_request(
    sites: Sites, agent: Any, suggested: str
) -> None:
    """By another one, the answer would contradict the crawl. Without an agent, it is for all."""
    site = sites.add(robots=RULES)
    request = Request(site.url("/private"), meta={"rep_user_agent": agent} if agent else {})
    result = await crawl(request, {"USER_AGENT": "Mozilla/5.0"})
    [line] = lines(result, "every start request", level="WARNING")
    assert line.endswith(f" --agent {suggested} {site.url('/private')}")


async def test_every_start_request_was_given_up(sites: Sites) -> None:
    down = sites.refused()
    settings = {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 2}
    result = await crawl([f"{down}/1", f"{down}/2"], settings)
    [line] = lines(result, "every start request", level="WARNING")
    assert "refused every start request (2)" in line
    assert "robots.txt unreachable" in line
    assert summary(result) == [
        "robots.txt of 1 origin: 1 unreachable (refused)",
        "Requests: 0 allowed, 0 forbidden, 2 held (2 given up)",
    ]
    assert_clean(result)


class ErrbackSpider(ListSpider):
    """Goes elsewhere when a start request is refused."""

    other = ""

    def failed(self, failure: Any) -> Any:
        super().failed(failure)
        return Request(self.other, callback=self.parse)


async def test_what_is_fetched_later_is_no_start_request(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(ErrbackSpider, requests=[site.url("/x")], other=site.url("/page"))
    assert result.responses == {site.url("/page"): 200}
    assert len(lines(result, "every start request", level="WARNING")) == 1


@pytest.mark.parametrize("page", [404, silence()], ids=["404", "silent"])
async def test_a_start_request_that_fails_is_none_that_is_refused(sites: Sites, page: Any) -> None:
    site = sites.add(robots=RULES, pages={"/page": page})
    settings = {"DOWNLOAD_TIMEOUT": 0.2, "RETRY_ENABLED": False}
    result = await crawl([site.url("/x"), site.url("/page"), site.url("/private")], settings)
    assert lines(result, "every start request", level="WARNING") == []


async def test_start_requests_kept_for_the_next_run(sites: Sites, tmp_path: Any) -> None:
    """The user has stopped the crawl: others may have got through."""
    site, other = sites.add(robots=503), sites.add(robots=RULES)
    settings = {**DEFER, "JOBDIR": str(tmp_path),
                "REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}  # fmt: skip

    def stop(spider: Spider, count: int) -> None:
        stats = spider.crawler.stats
        assert stats is not None
        if count == 2:
            as_soon_as(lambda: stats.get_value("robotstxt/forbidden"), record.close)

    record = Record(on_deferred=stop)
    wanted = [*urls(site, 2), other.url("/x")]
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert lines(result, "every start request", level="WARNING") == []
    requests = "Requests: 0 allowed, 1 forbidden, 2 held (2 kept for the next run)"
    assert summary(result)[1] == requests


async def test_no_start_requests(sites: Sites) -> None:
    result = await crawl([])
    assert lines(result, "every start request", level="WARNING") == []
    assert summary(result) == []
    assert_clean(result)


# -- the summary -----------------------------------------------------------------------------


async def test_the_summary_counts_origins_requests_and_lines(sites: Sites) -> None:
    rules, other = sites.add(robots=RULES), sites.add(robots="User-agent: testbot\nDisallow: /")
    missing, away = sites.add(robots=404), sites.add(robots=in_turn(503, 503, RULES))
    wanted = [
        *urls(rules, 4, "/private/"), *urls(rules, 2, "/x"), *urls(rules, 7, "/page"),
        *urls(other, 3), *urls(missing, 5), *urls(away, 6), f"{sites.refused()}/1",
    ]  # fmt: skip
    result = await crawl(StepSpider, {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 1}, steps=wanted)
    assert summary(result) == [
        "robots.txt of 5 origins: 3 with rules, 1 without restrictions, 1 unreachable (refused)",
        "Requests: 18 allowed, 9 forbidden, 1 dropped (robots.txt unreachable), 1 held (1 released)",
        "Lines that decided most often:",
        f"  4 × {origin_of(rules)}, line 2: Disallow: /private (group *)",
        f"  3 × {origin_of(other)}, line 2: Disallow: / (group testbot)",
        f"  2 × {origin_of(rules)}, line 3: Disallow: /x (group *)",
    ]
    assert len(result.responses) == 18
    assert_clean(result)


async def test_summary_of_one(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl([site.url("/x1"), site.url("/page")])
    assert summary(result) == [
        "robots.txt of 1 origin: 1 with rules",
        "Requests: 1 allowed, 1 forbidden",
        "The line that decided:",
        f"  1 × {origin_of(site)}, line 3: Disallow: /x (group *)",
    ]


async def test_summary_where_the_unreachable_may_pass(sites: Sites) -> None:
    site = sites.add(robots=503)
    result = await crawl(urls(site, 3), {"REP_UNREACHABLE": "allow"})
    assert summary(result) == [
        "robots.txt of 1 origin: 1 unreachable (HTTP 503)",
        "Requests: 0 allowed, 3 allowed though robots.txt was unreachable, 0 forbidden",
    ]
