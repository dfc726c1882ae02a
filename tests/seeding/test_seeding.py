"""REP.md section 9: the sitemaps of a robots.txt are announced, and requested with REP_SITEMAPS."""

from __future__ import annotations

import pytest

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import RULES, answer
from tests.helpers.crawling import DAY, Clock, StepSpider, crawl
from tests.helpers.log import lines, warnings
from tests.helpers.recorded import Discovered
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import SeededSpider, listing, seeded, urlset

ON = {"REP_SITEMAPS": True}
UNREAD = " was not read: "


@pytest.mark.scrapy_api
@pytest.mark.parametrize("on", [True, False])
async def test_found_in_any_case_and_requested_if_it_is_on(
    sites: Sites, on: bool
) -> None:
    site, discovered = sites.add(), Discovered()
    urls = [site.url("/b.xml?x=1"), site.url("/a.xml")]
    site.set("/robots.txt", listing(*urls))
    settings = ON if on else None
    result = await crawl(
        site.url("/page"), settings, signal_handlers=discovered.handlers
    )
    assert sorted(site.pages_asked) == [
        *(["/a.xml", "/b.xml?x=1"] if on else []),
        "/page",
    ]
    assert discovered.urls == urls  # in the file's order
    expected = {"origin": Origin.from_url(site.url()), "spider": result.spider}
    for url, one in zip(urls, discovered.all, strict=True):
        assert {key: one[key] for key in {*one} - {"signal", "sender"}} == {
            **expected,
            "url": url,
        }
    assert result.stat("rep/sitemaps/found") == 2
    result.assert_clean()


async def test_once_each_though_many_sites_list_it(sites: Sites) -> None:
    shared = sites.add()
    url = shared.url("/shared.xml")
    # Also twice in one file, and by spellings of one URL.
    many = [sites.add(robots=listing(url, url, url + "#x")) for _ in range(3)]
    many.append(sites.add(robots=listing(url.replace("http:", "HTTP:"))))
    discovered = Discovered()
    starts = [site.url("/page") for site in many]
    result = await crawl(starts, ON, signal_handlers=discovered.handlers)
    assert shared.pages_asked == ["/shared.xml"]
    assert len(discovered.all) == result.stat("rep/sitemaps/found") == 1


async def test_once_though_robots_txt_is_fetched_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, discovered = sites.add(), Discovered()
    site.set("/robots.txt", listing(site.url("/a.xml")))
    later = listing(site.url("/a.xml"), site.url("/new.xml"))
    steps = [
        *[
            site.url("/1"),
            lambda: site.set("/robots.txt", later),
            DAY + 1,
            site.url("/2"),
        ],
        *[lambda: site.set("/robots.txt", 503), DAY + 1, site.url("/3")],
    ]
    clock = Clock().install(monkeypatch)
    await crawl(
        StepSpider, ON, steps=steps, clock=clock, signal_handlers=discovered.handlers
    )
    assert site.count("/robots.txt") == 3
    assert (site.count("/a.xml"), site.count("/new.xml")) == (1, 1)
    assert discovered.urls == [site.url("/a.xml"), site.url("/new.xml")]


async def test_sitemaps_may_be_anywhere_and_pages_may_not(sites: Sites) -> None:
    """The robots.txt of its own host decides about a sitemap, whatever allowed_domains says."""
    forbidding, allowing, busy = (
        sites.add(robots=RULES),
        sites.add(),
        sites.add(robots=503),
    )
    # Who only serves sitemaps for others is not a site that the crawl meets.
    allowing.set("/robots.txt", listing("http://ignored.test/x"))
    private = [one.url("/private.xml") for one in (forbidding, allowing, busy)]
    site = sites.add(name="pages.test")
    site.set(
        "/robots.txt", listing(*private, site.url("/private/own.xml"), rules=RULES)
    )
    allowing.set("/private.xml", urlset([site.url("/page"), allowing.url("/page")]))
    spider = type("Onsite", (SeededSpider,), {"allowed_domains": ["pages.test"]})
    result = await seeded(site, spider=spider, REP_SITEMAP_CROSS_HOST="any")
    assert allowing.pages_asked == ["/private.xml"]
    assert forbidding.pages_asked == busy.pages_asked == []
    assert sorted(site.pages_asked) == ["/page", "/start"]
    assert result.stat("robotstxt/forbidden") == 2
    assert result.stat("rep/sitemaps/failed") == 3
    assert result.stat("offsite/filtered") == 1


async def test_as_many_as_a_site_may_submit_are_taken(sites: Sites) -> None:
    """They belong to a robots.txt, not to its groups, nor to the page that says there is none."""
    gone, closed, discovered = sites.add(), sites.add(), Discovered()
    gone.set("/robots.txt", answer(listing(gone.url("/map.xml")), 404))
    urls = [closed.url(f"/{number}.xml") for number in range(600)]
    rules = "User-agent: *\nDisallow: /\n"
    closed.set("/robots.txt", rules + listing(*urls[:1], *urls))
    starts = [gone.url("/page"), closed.url("/page")]
    result = await crawl(starts, signal_handlers=discovered.handlers)
    assert isinstance(result.failure(closed.url("/page")), RobotsDisallowed)
    assert discovered.urls == urls[:500]
    [message] = lines(result, " lists ", level="WARNING")
    assert message.endswith("lists 600 sitemaps; those after the first 500 are ignored")


# Of a `sitemap` line: value ({}: host and port), path, whether to warn (more: origins/test_urls.py).
VALUES = {
    "sub/map.xml?x=1": ("/sub/map.xml?x=1", True),
    "http://{}/k\u00e4se map.xml": ("/k%C3%A4se%20map.xml", False),
    "javascript:" + "x" * 5000: ("", True),
    "# a comment": ("", False),
}


async def test_what_a_sitemap_line_says(sites: Sites) -> None:
    table = {value: sites.add() for value in VALUES}
    for value, site in table.items():
        line = value.replace("{}", site.url("").removeprefix("http://"))
        site.set("/robots.txt", listing(line, site.url("/good.xml")))
    result = await seeded(*table.values())
    with every_row() as row:
        for value, (path, warned) in VALUES.items():
            site = table[value]
            with row(value):
                asked = {"/start", "/good.xml", *([path] if path else [])}
                assert sorted(site.pages_asked) == sorted(asked)
                of_site = f"robots.txt of {site.url('')} "
                said = [
                    one for one in warnings(result, without=UNREAD) if of_site in one
                ]
                lists = f"{of_site}lists 1 sitemap with a relative or an invalid URL: {value[:200]}"
                assert said == [lists] * warned
