"""REP.md section 9, location scope: which hosts' URLs a sitemap may list."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.core.engine import ExecutionEngine

from tests.helpers.behaviours import in_turn, redirect, silence
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import NEVER
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, pages, urlset

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

ON = {"REP_SITEMAPS": True}
DEFER = {
    **ON,
    "REP_UNREACHABLE": "defer",
    "REP_RETRY_DELAY": 0.05,
    "REP_RETRY_MAX_DELAY": 0.1,
}


def listing(site: Site, *sitemaps: str) -> None:
    site.set("/robots.txt", "".join(f"Sitemap: {url}\n" for url in sitemaps))


async def seeded(site: Site, settings: dict[str, Any] = ON) -> CrawlResult:
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    result.assert_clean()
    assert result.stat("rep/sitemaps/waiting") == 0
    return result


@pytest.mark.parametrize("policy", ["strict", "any"])
async def test_urls_of_other_hosts(sites: Sites, policy: str) -> None:
    """Only if the other host's own robots.txt lists the same sitemap, or the user says so."""
    site, listed, unlisted, without = (sites.add() for _ in range(4))
    maps = sites.add()
    url = maps.url("/map.xml")
    listing(site, url)
    listing(listed, "http://something.test/else.xml", url)
    listing(unlisted, unlisted.url("/its-own.xml"))
    all_hosts = [site, listed, unlisted, without, maps]
    maps.set("/map.xml", urlset([one.url(f"/{n}") for n in range(20) for one in all_hosts]))
    result = await seeded(site, {**ON, "REP_SITEMAP_CROSS_HOST": policy})
    accepted = all_hosts if policy == "any" else [site, listed]
    assert pages(result) == sorted(one.url(f"/{n}") for n in range(20) for one in accepted)
    assert result.stat("rep/sitemaps/rejected/cross_host") == (0 if policy == "any" else 60)
    if policy == "strict":
        # maps is known by then, the others are not.
        assert "(60 waiting for another host's robots.txt)" in lines(result, "accepted")[0]
        assert [one.count("/robots.txt") for one in all_hosts] == [1] * 5
    result.assert_clean()


async def test_an_index_that_is_listed_stands_for_all_that_it_leads_to(sites: Sites) -> None:
    site, other = sites.add(), sites.add()
    listing(site, site.url("/index.xml"))
    site.set("/index.xml", index([site.url("/deeper.xml")]))
    site.set("/deeper.xml", index([site.url("/map.xml")]))
    site.set("/map.xml", urlset([other.url("/page"), site.url("/page")]))
    for path, count in (("/index.xml", 2), ("/deeper.xml", 2), ("/map.xml", 2), ("/no.xml", 1)):
        listing(other, site.url(path))
        assert len(pages(await seeded(site))) == count


async def test_http_and_https_are_one_host(sites: Sites) -> None:
    from scrapy_rep.protocol import Origin
    from scrapy_rep.seeding.selection import host_of

    def host(url: str) -> str:
        return host_of(Origin.from_url(url))

    assert host("http://a.test/") == host("https://A.test:443/") == host("http://a.test:80")
    assert host("http://a.test:8080/") == host("https://a.test:8080/") != host("http://a.test/")
    assert host("https://www.a.test/") != host("https://a.test/")
    assert host("http://a.test:443/") != host("http://a.test/")


async def test_rules_that_were_redirected(sites: Sites) -> None:
    """The sitemaps are those of the host that was first asked; relative ones of where the file is."""
    there = sites.add(pages={"/rules": "Sitemap: map.xml\n"})
    site = sites.add(robots=redirect(there.url("/rules")))
    also = sites.add(robots=redirect(there.url("/rules")))
    there.set("/map.xml", urlset([one.url("/page") for one in (site, also, there)]))
    result = await seeded(site)
    assert pages(result) == sorted([site.url("/page"), also.url("/page")])


async def test_entries_that_are_read_after_their_host_has_answered(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before them were judged meanwhile."""
    monkeypatch.setattr("scrapy_rep.engine.pause.SLICE_SECONDS", -1.0)
    site, other = sites.add(), sites.add()
    for one in (site, other):
        listing(one, site.url("/map.xml"))
    first, wanted = [other.url("/first")], [other.url(f"/{n}") for n in range(100)]
    filling = "<x/>" * 400_000
    body = urlset(first + wanted)
    at = body.index("<url>", body.index("<url>") + 1)
    site.set("/map.xml", body[:at] + filling + body[at:])
    result = await seeded(site)
    assert pages(result) == sorted(first + wanted)


async def test_one_that_answers_late(sites: Sites) -> None:
    """What is listed of it waits, and nothing else does."""
    site, late = sites.add(), sites.add()
    url = site.url("/map.xml")
    listing(site, url)
    late.set("/robots.txt", in_turn(503, 503, f"Sitemap: {url}\n"))
    site.set("/map.xml", urlset([late.url("/page"), *[site.url(f"/{n}") for n in range(10)]]))
    result = await seeded(site, DEFER)
    assert len(pages(result)) == 11
    urls = [response.url for response in result.spider.responses]
    assert urls[-1] == late.url("/page")


@pytest.mark.parametrize("robots", [503, silence()], ids=["503", "silent"])
@pytest.mark.usefixtures("in_time")
async def test_one_that_never_answers(
    sites: Sites, robots: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not keep the crawl open for longer than REP_DEFER_MAX_WAIT."""
    # The engine is told that the crawl may be over, it need not look every 5 s.
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
    site, dead = sites.add(), sites.add(robots=robots)
    listing(site, site.url("/map.xml"))
    wanted = [site.url(f"/{n}") for n in range(10)]
    site.set("/map.xml", urlset([dead.url("/a"), *wanted, dead.url("/b")]))
    result = await seeded(site, {**DEFER, "REP_DEFER_MAX_WAIT": 0.5})
    assert pages(result) == sorted(wanted)
    assert result.stat("rep/sitemaps/rejected/unproven") == 2


@pytest.mark.parametrize("policy", ["drop", "allow"])
async def test_one_that_is_not_waited_for(sites: Sites, policy: str) -> None:
    site, dead = sites.add(), sites.add(robots=503)
    listing(site, site.url("/map.xml"))
    site.set("/map.xml", urlset([dead.url("/a"), site.url("/b")]))
    result = await seeded(site, {**ON, "REP_UNREACHABLE": policy})
    assert pages(result) == [site.url("/b")]
    assert result.stat("rep/sitemaps/rejected/unproven") == 1


async def test_a_host_that_does_not_exist(sites: Sites) -> None:
    site, refused = sites.add(), sites.refused()
    listing(site, site.url("/map.xml"))
    site.set("/map.xml", urlset([refused + "/a", site.url("/b")]))
    result = await seeded(site, DEFER)
    assert pages(result) == [site.url("/b")]
    assert result.stat("rep/sitemaps/rejected/unproven") == 1


async def test_very_many_hosts(sites: Sites) -> None:
    """Their robots.txt are asked for some at a time."""
    site = sites.add()
    others = [sites.add() for _ in range(60)]
    listing(site, site.url("/map.xml"))
    for other in others[::2]:
        listing(other, site.url("/map.xml"))
    site.set("/map.xml", urlset([other.url("/page") for other in others]))
    result = await seeded(site)
    assert pages(result) == sorted(other.url("/page") for other in others[::2])
    assert result.stat("rep/sitemaps/rejected/cross_host") == 30


async def test_a_sitemap_whose_own_host_is_unreachable_for_a_while(sites: Sites) -> None:
    """The request for it is held like any other."""
    site, maps = sites.add(), sites.add(robots=in_turn(503, 503, "User-agent: *\n"))
    listing(site, maps.url("/map.xml"))
    maps.set("/map.xml", urlset([site.url("/page")]))
    result = await seeded(site, {**DEFER, "REP_DEFER_GRACE": 0})
    assert pages(result) == [site.url("/page")]
    assert result.stat("rep/deferred") >= 1
    assert result.stat("rep/sitemaps/fetched") == 1
