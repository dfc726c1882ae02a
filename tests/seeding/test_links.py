"""Sitemaps that pages link to, where no robots.txt lists any; with `REP_SITEMAP_GUESS`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scrapy.http import HtmlResponse

from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.links import PageLinks
from scrapy_rep.seeding.loader import GUESSES
from tests.helpers.behaviours import after, answer, page, redirect
from tests.helpers.crawling import crawl
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, lists, pages, seeded, urlset

pytestmark = pytest.mark.slow

GUESS = {"REP_SITEMAP_GUESS": True}
MISSING = dict.fromkeys(GUESSES, 404)
LINK = "<html><head><link rel='sitemap' href='/own.xml'></head><body>x</body>"


def linking(sites: Sites, start: Any = None, robots: Any = 404) -> Site:
    """A site whose start page links to a sitemap that nobody would guess, which lists `/page`."""
    site = sites.add(robots=robots, pages=dict(MISSING))
    site.set("/start", page(LINK) if start is None else start)
    site.set("/own.xml", urlset([site.url("/page")]))
    return site


def header(*values: str, status: int = 200) -> Any:
    return answer("x", status, [("Link", value) for value in values])


async def test_a_sitemap_that_a_page_links_to_is_read(sites: Sites) -> None:
    with every_row() as row:
        for name, start in {
            "a link in the head": page(LINK),
            "a relative one": page(
                "<base href='/x/../'><link rel=sitemap href='own.xml'>"
            ),
            "a header": header('</own.xml>; rel="sitemap"'),
            "one of several": header("</a.css>; rel=preload, <own.xml>; rel=sitemap"),
        }.items():
            with row(name):
                site = linking(sites, start)
                result = await seeded(site, **GUESS)
                assert pages(result) == [site.url("/page")]
                assert site.count("/own.xml") == 1


async def test_links_do_not_count_where_they_are_not_asked_for(sites: Sites) -> None:
    """Nor those of error pages, of what is no HTML, of the body, and where robots.txt lists a sitemap."""
    settled = linking(sites)
    settled.set("/robots.txt", f"Sitemap: {settled.url('/other.xml')}\n")
    settled.set("/other.xml", urlset([]))
    others = {
        "in the body": linking(sites, page("<body><link rel=sitemap href=/own.xml>")),
        "no HTML": linking(sites, answer(LINK)),
        "an error page": linking(sites, header("</own.xml>; rel=sitemap", status=404)),
        "robots.txt lists one": settled,
    }
    off = linking(sites)
    assert pages(await seeded(off)) == []
    assert off.count("/own.xml") == 0
    with every_row() as row:
        for name, site in others.items():
            with row(name):
                assert pages(await seeded(site, **GUESS)) == []
                assert site.count("/own.xml") == 0


async def test_any_page_of_the_site_may_link_to_one(sites: Sites) -> None:
    """Each sitemap is read once, however many pages link to it."""
    site = linking(sites)
    site.set("/own.xml", urlset([site.url(f"/page/{number}") for number in range(5)]))
    for number in range(5):
        site.set(
            f"/page/{number}",
            page(LINK.replace("own", "more") if number == 3 else LINK),
        )
    site.set("/more.xml", urlset([site.url("/last")]))
    result = await seeded(site, **GUESS)
    assert len(pages(result)) == 6
    assert site.url("/last") in pages(result)
    assert [site.count(path) for path in ("/own.xml", "/more.xml")] == [1, 1]


async def test_links_count_of_the_page_that_a_redirect_leads_to(sites: Sites) -> None:
    site, target = sites.add(), linking(sites)
    site.set("/start", redirect(target.url("/start")))
    assert pages(await seeded(site, **GUESS)) == [target.url("/page")]


async def test_robots_txt_of_its_own_host_decides(sites: Sites) -> None:
    rules = "User-agent: *\nDisallow: /own\n"
    forbidden = linking(sites, robots=rules)
    other = sites.add(robots=rules)
    far = linking(sites, page(f"<link rel=sitemap href='{other.url('/own.xml')}'>"))
    result = await seeded(forbidden, far, **GUESS)
    assert pages(result) == []
    assert [site.count("/own.xml") for site in (forbidden, other)] == [0, 0]


async def test_its_pages_on_another_host_need_that_hosts_proof(sites: Sites) -> None:
    """Wherever the sitemap itself is: the page's host has led to it."""
    elsewhere, proving, other = sites.add(), sites.add(), sites.add()
    elsewhere_url = elsewhere.url("/own.xml")
    site = linking(sites, page(f"<link rel=sitemap href='{elsewhere_url}'>"))
    lists(proving, "/x.xml")
    proving.set("/robots.txt", f"Sitemap: {elsewhere_url}\n")
    urls = [one.url("/page") for one in (site, elsewhere, proving, other)]
    elsewhere.set("/own.xml", urlset(urls))
    result = await seeded(site, **GUESS)
    assert pages(result) == sorted([site.url("/page"), proving.url("/page")])
    assert result.stat("rep/sitemaps/rejected/cross_host") == 2


async def test_the_limits_of_an_origin_hold(sites: Sites) -> None:
    """All its sitemaps count, its guesses too; and of one page ten."""
    links = "".join(f"<link rel=sitemap href='/{number}.xml'>" for number in range(30))
    site = linking(sites, page(links))
    for number in range(30):
        site.set(f"/{number}.xml", urlset([]))
    await seeded(site, **GUESS, _REP_SITEMAP_MAX_FILES=8)
    read = sum(site.count(f"/{number}.xml") for number in range(30))
    assert 1 <= read < 8
    site = linking(sites, page(links))
    for number in range(30):
        site.set(f"/{number}.xml", urlset([]))
    await seeded(site, **GUESS)
    assert sum(site.count(f"/{number}.xml") for number in range(30)) == 10


async def test_a_link_to_a_usual_place_does_not_end_the_guesses(sites: Sites) -> None:
    """If it leads nowhere."""
    site = linking(sites, page(f"<link rel=sitemap href='{GUESSES[1]}'>"))
    site.set(GUESSES[3], urlset([site.url("/page")]))
    site.set(GUESSES[0], after(0.2, 404))
    assert pages(await seeded(site, **GUESS)) == [site.url("/page")]
    assert [site.count(place) for place in GUESSES] == [1, 1, 1, 1, 0, 0]


async def test_a_private_address_is_not_asked(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a robots.txt: here, all addresses are private, so the origin is made a public one."""
    from scrapy_rep.origins.targets import Targets

    asked: list[str] = []

    async def refuses(self: Targets, target: Any, by: Any) -> bool:
        asked.append(str(target))
        return bool(target != by)

    monkeypatch.setattr(Targets, "refuses", refuses)
    other = sites.add()
    site = linking(sites, page(f"<link rel=sitemap href='{other.url('/own.xml')}'>"))
    result = await seeded(site, **GUESS)
    assert other.count("/own.xml") == 0
    assert other.url("").rstrip("/") in asked
    assert len(lines(result, "its host has a private address", level="WARNING")) == 1


async def test_one_that_fails_is_a_warning_and_hostile_ones_cost_nothing(
    sites: Sites,
) -> None:
    site = linking(sites)
    site.set("/own.xml", 404)
    result = await seeded(site, **GUESS)
    assert len(lines(result, "own.xml was not read: HTTP 404", level="WARNING")) == 1
    urls = [
        "http://[",
        "javascript:x",
        "//",
        "http:",
        "ftp://a.example/",
        "x" * 20_000,
        "\x00",
        "http://a b/",
    ]
    bad = "".join(f"<link rel=sitemap href='{url}'>" for url in urls)
    hostile = linking(sites, page(bad))
    tail = linking(sites, page(bad + "<link rel=sitemap href='/own.xml'>"))
    result = await seeded(hostile, tail, **GUESS)
    assert pages(result) == [tail.url("/page")]


def test_a_base_that_is_none_does_not_count() -> None:
    """Scrapy's MetaRefreshMiddleware fails such pages, unless it is off."""
    found: list[list[str]] = []
    links = PageLinks(lambda origin, page, urls: found.append(urls))
    links.look_at_pages_of(Origin.from_url("http://a.example"))
    body = b"<base href='http://['><link rel=sitemap href=/own.xml>"
    for _ in range(2):
        links.look_at(HtmlResponse("http://a.example/x", body=body))
    assert found == [["http://a.example/own.xml"]]


async def test_only_start_pages_sites_count_if_the_project_says_so(
    sites: Sites,
) -> None:
    other = linking(sites)
    site = linking(sites)
    site.set("/own.xml", urlset([site.url("/page"), other.url("/start")]))
    settings = {"REP_SITEMAPS": "start", "REP_SITEMAP_CROSS_HOST": "any", **GUESS}
    result = await seeded(site, **settings)
    assert site.url("/page") in pages(result)
    assert other.count("/own.xml") == 0


async def test_the_record_says_how_it_was_found(sites: Sites, tmp_path: Path) -> None:
    site = linking(sites)
    site.set("/own.xml", index([site.url("/inner.xml")]))
    site.set("/inner.xml", urlset([site.url("/page")]))
    path = tmp_path / "record.jsonl"
    settings = {"REP_SITEMAPS": True, "REP_DECISIONS": path, **GUESS}
    await crawl(SeededSpider, settings, requests=[site.url("/start")])
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = {
        row["url"]: (row["sitemap"]["found"], row["sitemap"]["by"])
        for row in rows
        if row["verdict"] == "sitemap" and row["sitemap"]["found"] != "guessed"
    }
    assert found == {
        site.url("/own.xml"): ("linked", site.url("").rstrip("/")),
        site.url("/inner.xml"): ("index", site.url("/own.xml")),
    }
