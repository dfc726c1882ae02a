"""REP.md section 9, location scope: which hosts' URLs a sitemap may list."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.core.engine import ExecutionEngine

from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.selection import host_of, registrable_domain
from tests.helpers.behaviours import in_turn, once, redirect, silence
from tests.helpers.held import NEVER
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import index, listing, lists, pages, seeded, urlset

pytestmark = pytest.mark.slow
HOLD = {"REP_UNREACHABLE": "hold", "REP_RETRY_DELAY": 0.05, "REP_RETRY_MAX_DELAY": 0.1}


@pytest.mark.parametrize("policy", ["strict", "any"])
async def test_urls_of_other_hosts(sites: Sites, policy: str) -> None:
    """Only if the other host's own robots.txt lists the same sitemap, or the user says so."""
    site, listed, unlisted, maps, _ = every = [sites.add() for _ in range(5)]
    url = maps.url("/map.xml")
    site.set("/robots.txt", listing(url))
    listed.set("/robots.txt", listing("http://something.test/else.xml", url))
    lists(unlisted, "/its-own.xml")
    maps.set("/map.xml", urlset([one.url(f"/{n}") for n in range(20) for one in every]))
    result = await seeded(site, REP_SITEMAP_CROSS_HOST=policy)
    accepted = every if policy == "any" else [site, listed]
    assert pages(result) == sorted(
        one.url(f"/{n}") for n in range(20) for one in accepted
    )
    assert result.stat("rep/sitemaps/rejected/cross_host") == (
        0 if policy == "any" else 60
    )
    if policy == "strict":
        assert (
            "(80 waiting for another host's robots.txt)" in lines(result, "accepted")[0]
        )
        assert [one.count("/robots.txt") for one in every] == [1] * 5


async def test_hosts_of_one_site(sites: Sites) -> None:
    """Apex, www and other subdomains of one registrable domain; users of github.io are no site."""
    names = ["example.co.uk", "www.example.co.uk", "shop.example.co.uk", "other.co.uk"]
    apex, *others = [sites.add(name=name) for name in names]
    mine, yours = sites.add(name="me.github.io"), sites.add(name="you.github.io")
    lists(apex, "/map.xml").set(
        "/map.xml", urlset([one.url("/page") for one in (apex, *others)])
    )
    lists(mine, "/map.xml").set(
        "/map.xml", urlset([mine.url("/page"), yours.url("/page")])
    )
    result = await seeded(apex, mine, REP_SITEMAP_CROSS_HOST="site")
    assert pages(result) == sorted(
        one.url("/page") for one in (apex, *others[:2], mine)
    )


DOMAINS = {
    "www.example.com": "example.com",
    "example.com": "example.com",
    "a.b.example.co.uk": "example.co.uk",
    "me.github.io": "me.github.io",
    "www.xn--bcher-kva.example.de": "example.de",
    **dict.fromkeys(["127.0.0.1", "[::1]", "localhost", "com", "co.uk", "github.io"]),
}


def test_a_host_has_a_registrable_domain_or_none() -> None:
    """Two hosts without any are never one site."""
    assert {host: registrable_domain(host) for host in DOMAINS} == DOMAINS


def test_http_and_https_are_one_host() -> None:
    def host(url: str) -> str:
        return host_of(Origin.from_url(url))

    assert (
        host("http://a.test/")
        == host("https://A.test:443/")
        == host("http://a.test:80")
    )
    assert (
        host("http://a.test:8080/")
        == host("https://a.test:8080/")
        != host("http://a.test/")
    )
    assert host("https://www.a.test/") != host("https://a.test/")
    assert host("http://a.test:443/") != host("http://a.test/")


async def test_an_index_that_is_listed_stands_for_all_that_it_leads_to(
    sites: Sites,
) -> None:
    site, paths = sites.add(), ["/index.xml", "/deeper.xml", "/map.xml", "/no.xml"]
    others = [lists(sites.add()) for _ in paths]
    for other, path in zip(others, paths, strict=True):
        other.set("/robots.txt", listing(site.url(path)))
    lists(site, "/index.xml").set("/index.xml", index([site.url("/deeper.xml")]))
    site.set("/deeper.xml", index([site.url("/map.xml")]))
    site.set("/map.xml", urlset([one.url("/page") for one in (*others, site)]))
    assert pages(await seeded(site)) == sorted(
        one.url("/page") for one in (*others[:3], site)
    )


async def test_rules_that_were_redirected(sites: Sites) -> None:
    """The sitemaps are those of the host that was first asked; relative ones of where the file is."""
    there = sites.add(pages={"/rules": "Sitemap: map.xml\n"})
    site, also = (sites.add(robots=redirect(there.url("/rules"))) for _ in range(2))
    there.set("/map.xml", urlset([one.url("/page") for one in (site, also, there)]))
    assert pages(await seeded(site)) == sorted([site.url("/page"), also.url("/page")])


async def test_entries_that_are_read_after_their_host_has_answered(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.engine.timers.SLICE_SECONDS", -1.0)
    site, other = sites.add(), sites.add()
    for one in (site, other):
        one.set("/robots.txt", listing(site.url("/map.xml")))
    first, wanted = [other.url("/first")], [other.url(f"/{n}") for n in range(20)]
    body = urlset(first + wanted)
    at = body.index("<url>", body.index("<url>") + 1)
    site.set("/map.xml", body[:at] + "<x/>" * 200_000 + body[at:])
    assert pages(await seeded(site)) == sorted(first + wanted)


def one_of(site: Site, other: str, count: int = 3) -> list[str]:
    """A sitemap of *site* lists a page of *other*, and some of its own, which are returned."""
    own = [site.url(f"/{n}") for n in range(count)]
    lists(site, "/map.xml").set("/map.xml", urlset([f"{other}/page", *own]))
    return own


async def test_one_that_answers_late(sites: Sites) -> None:
    site, late = sites.add(), sites.add()
    own = one_of(site, late.url(""))
    late.set("/robots.txt", in_turn(503, 503, listing(site.url("/map.xml"))))
    result = await seeded(site, **HOLD)
    assert pages(result) == sorted([*own, late.url("/page")])
    assert result.spider.responses[-1].url == late.url("/page")


@pytest.mark.loop
@pytest.mark.parametrize("other", ["silent", "503", "drop", "allow", "refused"])
@pytest.mark.usefixtures("in_time")
async def test_one_that_never_answers(
    sites: Sites, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the crawl open for at most REP_HOLD_MAX_WAIT, or not at all if the policy is so."""
    settings: dict[str, Any] = dict(HOLD)
    if other in ("silent", "503"):
        # The engine is told that the crawl may be over, it need not look every 5 s.
        monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
        # However long the next attempt at it is away.
        delays = {
            "REP_RETRY_DELAY": 600,
            "REP_RETRY_MAX_DELAY": 600,
            "REP_HOLD_MAX_WAIT": 0.3,
        }
        settings |= delays
    elif other != "refused":
        settings["REP_UNREACHABLE"] = other
    robots = silence() if other == "silent" else 503
    dead = sites.refused() if other == "refused" else sites.add(robots=robots).url("")
    site = sites.add()
    own = one_of(site, dead)
    result = await seeded(site, **settings)
    assert pages(result) == own
    assert result.stat("rep/sitemaps/rejected/unproven") == 1


async def test_very_many_hosts(sites: Sites) -> None:
    site, *others = [sites.add() for _ in range(41)]
    for one in (site, *others[::2]):
        one.set("/robots.txt", listing(site.url("/map.xml")))
    site.set("/map.xml", urlset([other.url("/page") for other in others]))
    result = await seeded(site)
    assert pages(result) == sorted(other.url("/page") for other in others[::2])
    assert result.stat("rep/sitemaps/rejected/cross_host") == 20
    assert lines(result, "Nothing was taken", level="WARNING") == []


async def test_hosts_that_the_crawl_knows_are_not_limited(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to ask them because of a sitemap."""
    monkeypatch.setattr("scrapy_rep.seeding.spool.MAX_HOSTS", 2)
    site, *others = every = [sites.add() for _ in range(6)]
    for one in every:
        one.set("/robots.txt", listing(site.url("/map.xml")))
    known = lambda: all(one.count("/start") for one in every[:5])
    site.set("/map.xml", once(known, urlset([one.url("/page") for one in every])))
    result = await seeded(*every[:5])
    assert pages(result) == sorted(one.url("/page") for one in every[:5])
    assert result.stat("rep/sitemaps/rejected/hosts") == 1
    assert others[-1].count("/robots.txt") == 0


async def test_a_sitemap_whose_own_host_is_unreachable_for_a_while(
    sites: Sites,
) -> None:
    site, maps = sites.add(), sites.add(robots=in_turn(503, 503, "User-agent: *\n"))
    site.set("/robots.txt", listing(maps.url("/map.xml")))
    maps.set("/map.xml", urlset([site.url("/page")]))
    result = await seeded(site, **HOLD, _REP_HOLD_GRACE=0)
    assert pages(result) == [site.url("/page")]
    assert result.stat("rep/held") >= 1
    assert result.stat("rep/sitemaps/fetched") == 1


async def test_a_sitemap_whose_entries_wait_in_vain_is_told(sites: Sites) -> None:
    """All of them are on a host that doesn't list it, say `www`."""
    apex, www = sites.add(name="example.com"), sites.add(name="www.example.com")
    lists(apex, "/map.xml", "/some.xml")
    apex.set("/map.xml", urlset([www.url(f"/{n}") for n in range(300)]))
    # The first is rejected before the last is read.
    apex.set(
        "/some.xml", urlset([www.url("/y"), *["/invalid"] * 20_000, apex.url("/y")])
    )
    result = await seeded(apex)
    assert pages(result) == [apex.url("/y")]
    [message] = lines(result, "Nothing was taken", level="WARNING")
    assert message == (
        f"Nothing was taken from sitemap {apex.url('/map.xml')}: its entries are on a host that "
        "does not list the sitemap"
    )
    assert result.stat("rep/sitemaps/nothing_taken") == 1
