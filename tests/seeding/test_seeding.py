"""REP.md section 9, as far as robots.txt goes: the sitemaps that it lists are announced, and
requested if REP_SITEMAPS is on."""

from __future__ import annotations

import pytest

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import answer
from tests.helpers.crawling import Clock, ListSpider, StepSpider, crawl
from tests.helpers.log import warnings
from tests.helpers.recorded import Discovered
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import listing

pytestmark = pytest.mark.scrapy_api

DAY = 86400


@pytest.mark.parametrize("on", [True, False])
async def test_found_and_requested(sites: Sites, on: bool) -> None:
    site = sites.add()
    urls = [site.url("/a.xml"), site.url("/b.xml?x=1")]
    site.set("/robots.txt", listing(*urls))
    discovered = Discovered()
    result = await crawl(
        site.url("/page"), {"REP_SITEMAPS": on}, signal_handlers=discovered.handlers
    )
    assert sorted(site.pages_asked) == sorted(["/page", *(["/a.xml", "/b.xml?x=1"] if on else [])])
    assert discovered.urls == urls  # in any case, in the file's order
    for one in discovered.all:
        assert one["origin"] == Origin.from_url(site.url())
        assert one["spider"] is result.spider
        assert {*one} - {"signal", "sender"} == {"origin", "url", "spider"}
    assert result.stat("rep/sitemaps/found") == 2
    assert warnings(result, without=" was not read: ") == []
    result.assert_clean()


async def test_off_is_the_default(sites: Sites) -> None:
    site = sites.add()
    site.set("/robots.txt", listing(site.url("/a.xml")))
    await crawl(site.url("/page"))
    assert site.pages_asked == ["/page"]


async def test_once_each_though_many_sites_list_it(sites: Sites) -> None:
    shared = sites.add()
    url = shared.url("/shared.xml")
    # Also twice in one file, and by spellings of one URL.
    many = [sites.add(robots=listing(url, url, url + "#x")) for _ in range(4)]
    many.append(sites.add(robots=listing(url.replace("http:", "HTTP:"))))
    discovered = Discovered()
    result = await crawl(
        [site.url("/page") for site in many],
        {"REP_SITEMAPS": True},
        signal_handlers=discovered.handlers,
    )
    assert shared.pages_asked == ["/shared.xml"]
    assert len(discovered.all) == result.stat("rep/sitemaps/found") == 1
    assert warnings(result, without=" was not read: ") == []
    result.assert_clean()


async def test_once_though_robots_txt_is_fetched_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, discovered = sites.add(), Discovered()
    site.set("/robots.txt", listing(site.url("/a.xml")))
    later = listing(site.url("/a.xml"), site.url("/new.xml"))
    steps = [
        *[site.url("/1"), lambda: site.set("/robots.txt", later), DAY + 1, site.url("/2")],
        *[lambda: site.set("/robots.txt", 503), DAY + 1, site.url("/3")],
    ]
    result = await crawl(
        StepSpider,
        {"REP_SITEMAPS": True},
        steps=steps,
        clock=Clock().install(monkeypatch),
        signal_handlers=discovered.handlers,
    )
    assert site.count("/robots.txt") == 3
    assert (site.count("/a.xml"), site.count("/new.xml")) == (1, 1)
    assert discovered.urls == [site.url("/a.xml"), site.url("/new.xml")]
    result.assert_clean()


class OnsiteSpider(ListSpider):
    dont_filter = False
    allowed_domains = ["pages.test"]


async def test_sitemap_outside_allowed_domains(sites: Sites) -> None:
    """A sitemap may be on any host; allowed_domains is about pages."""
    elsewhere = sites.add(name="maps.test")
    pages = sites.add(name="pages.test", robots=listing(elsewhere.url("/map.xml")))
    urls = [pages.url("/page"), elsewhere.url("/page")]
    result = await crawl(OnsiteSpider, {"REP_SITEMAPS": True}, requests=urls)
    assert elsewhere.pages_asked == ["/map.xml"]
    assert result.stat("offsite/filtered") == 1
    result.assert_clean()


async def test_robots_txt_of_the_sitemaps_own_host_decides(sites: Sites) -> None:
    rules = "User-agent: *\nDisallow: /private\n"
    forbidding, allowing, busy = sites.add(robots=rules), sites.add(), sites.add(robots=503)
    private = [one.url("/private.xml") for one in (forbidding, allowing, busy)]
    site = sites.add(robots=listing(*private, rules=rules))
    site.set("/robots.txt", listing(*private, site.url("/private/own.xml"), rules=rules))
    result = await crawl(site.url("/page"), {"REP_SITEMAPS": True})
    assert allowing.pages_asked == ["/private.xml"]
    assert forbidding.pages_asked == busy.pages_asked == []
    assert site.pages_asked == ["/page"]
    assert result.stat("robotstxt/forbidden") == 2
    assert result.stat("rep/sitemaps/found") == 4
    result.assert_clean()


async def test_more_than_500(sites: Sites) -> None:
    """As many as a site may submit are taken, in the file's order."""
    site, discovered = sites.add(), Discovered()
    urls = [site.url(f"/{number}.xml") for number in range(600)]
    site.set("/robots.txt", listing(*urls[:1], *urls))
    result = await crawl(site.url("/page"), signal_handlers=discovered.handlers)
    assert discovered.urls == urls[:500]
    [message] = warnings(result, without=" was not read: ")
    assert message.endswith("lists 600 sitemaps; those after the first 500 are ignored")
    result.assert_clean()


async def test_only_rules_list_sitemaps(sites: Sites) -> None:
    """Not a page that says that there is no file."""
    gone, discovered = sites.add(), Discovered()
    gone.set("/robots.txt", answer(listing(gone.url("/map.xml")), 404))
    result = await crawl(gone.url("/page"), signal_handlers=discovered.handlers)
    assert discovered.all == []
    result.assert_clean()


async def test_without_rules_for_anybody(sites: Sites) -> None:
    """They belong to no group, and stand anywhere: also in a page that forbids all."""
    site, discovered = sites.add(), Discovered()
    rules = "User-agent: *\nDisallow: /\n" + listing(site.url("/map.xml"))
    site.set("/robots.txt", rules)
    result = await crawl(site.url("/page"), signal_handlers=discovered.handlers)
    assert isinstance(result.failure(site.url("/page")), RobotsDisallowed)
    assert discovered.urls == [site.url("/map.xml")]
    result.assert_clean()
