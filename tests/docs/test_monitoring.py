"""docs/running.md: its exporter runs, its expressions are expressions, its stats are there."""

from __future__ import annotations

import re
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.docs.examples import EXAMPLE
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.docs import blocks, page
from tests.helpers.servers import Sites

open_url = build_opener(ProxyHandler({})).open
TEXT = page("running.md")


async def test_the_exporter_shows_the_stats_of_a_running_crawl(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    site, seen = (
        sites.add(robots="User-agent: *\nDisallow: /x\n", pages={"/": "page"}),
        list[str](),
    )

    def look(spider: Any) -> None:
        some = spider.crawler.extensions.middlewares
        [exporter] = [one for one in some if hasattr(one, "collect")]
        with open_url(
            f"http://127.0.0.1:{exporter.server.server_port}/metrics"
        ) as answer:
            seen.append(answer.read().decode())

    settings = {
        "EXTENSIONS": {"example.prometheus.Exporter": 500},
        "PROMETHEUS_PORT": 0,
    }
    requests = [site.url("/x"), site.url("/")]
    (await crawl(ListSpider, settings, requests=requests, on_page=look)).assert_clean()
    assert 'scrapy_stat{stat="rep/outcome/rules"} 1.0' in seen[0]
    assert 'scrapy_stat{stat="robotstxt/request_count"} 1.0' in seen[0]
    # The page shows it as it is.
    source = EXAMPLE.joinpath("example/prometheus.py").read_text("utf-8")
    shown = [block for block in blocks(TEXT, "python") if "prometheus_client" in block]
    assert [source.endswith(block) for block in shown] == [True]


def test_the_expressions_tell_good_crawls_from_bad_ones() -> None:
    settings: dict[str, Any] = {}
    [block] = [block for block in blocks(TEXT, "python") if "SPIDERMON" in block]
    exec(block, settings)  # noqa: S102 (it is ours)
    [monitor] = settings["SPIDERMON_SPIDER_CLOSE_EXPRESSION_MONITORS"]

    def outcome(stats: dict[str, int]) -> list[bool]:
        return [eval(test["expression"], {"stats": stats}) for test in monitor["tests"]]  # noqa: S307

    fetched = {"downloader/request_count": 20}
    assert outcome({**fetched, "robotstxt/forbidden": 10}) == [True, True]
    assert outcome({**fetched, "robotstxt/forbidden": 11}) == [True, False]
    assert outcome({"rep/given_up": 1}) == [False, True]


def test_its_stats_are_documented() -> None:
    named = set(re.findall(r"^\| `((?:rep|robotstxt)/[^`]+)` \|", TEXT, re.MULTILINE))
    assert len(named) >= 8
    assert [
        one for one in named if f"`{one}`" not in page("signals-and-stats.md")
    ] == []
