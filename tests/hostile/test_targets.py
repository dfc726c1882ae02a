"""Requests that a site can make us send: where they never lead (SECURITY.md).

A site that is reached through a proxy is a public one here: nothing but its name is known of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.addresses import is_private_host
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding import spool_file as sitemaptable
from tests.helpers import names
from tests.helpers.behaviours import RULES, answer, as_behaviour, redirect
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.log import lines
from tests.helpers.servers import Connection, Hit, Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, listing, pages, urlset

PRIVATE = [
    "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0", "0.0.0.0",  # noqa: S104 (nothing is bound)
    "10.1.2.3",
    "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "224.0.0.1",
    "255.255.255.255", "[::1]", "[::]", "[fe80::1]", "[fd00::1]", "[::ffff:127.0.0.1]",
    "[::ffff:a00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[ff02::1]", "localhost", "internal",
    "a.localhost", "printer.local", "router.home.arpa", "api.internal", "api.internal.", "localhost.",
]  # fmt: skip
PUBLIC = [
    "8.8.8.8", "1.1.1.1", "[2001:4860:4860::8888]", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]",
    "[2002:808:808::]",
]  # fmt: skip
NAMES = [
    "example.com",
    "localhost.example.com",
    "notlocal.example",
    "xn--bcher-kva.example",
    "1.2.3.4.example",
]


def test_hosts_are_private_public_or_names() -> None:
    assert {host: is_private_host(host) for host in PRIVATE} == dict.fromkeys(PRIVATE, True)
    assert {host: is_private_host(host) for host in PUBLIC} == dict.fromkeys(PUBLIC, False)
    assert {host: is_private_host(host) for host in NAMES} == dict.fromkeys(NAMES, None)


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.download
async def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {
        "inside.test": "127.0.0.5",
        "shop.test": "8.8.8.8",
        "cdn.test": "2001:4860:4860::8888",
    }
    for name, address in addresses.items():
        monkeypatch.setitem(names.ADDRESSES, name, address)
    crawler = get_crawler(settings_dict=Targeted.settings())
    shop, cdn, inside, unknown, literal = (
        Origin.from_url(f"http://{host}/")
        for host in ("shop.test", "cdn.test", "inside.test", "unknown.test", "127.0.0.9")
    )
    targets = Targets(crawler, private_hosts=False)
    for _ in "twice":  # from the cache, too
        assert [await targets.refuses(one, shop) for one in (inside, literal)] == [True, True]
        assert [await targets.refuses(one, shop) for one in (shop, cdn, unknown)] == [False] * 3
        assert [await targets.refuses(one, inside) for one in (literal, shop)] == [False] * 2
        assert not await targets.refuses(literal, literal)
    everything = Targets(crawler, private_hosts=True)
    assert not await everything.refuses(inside, shop)


class Targeted(SeededSpider):
    @staticmethod
    def settings() -> dict[str, Any]:
        """As the tests run: with a reactor or without."""
        from scrapy.utils.reactor import is_reactor_installed

        return {"TWISTED_REACTOR_ENABLED": is_reactor_installed()}


PAGE = answer("<p>", type="text/html")


class World(dict[str, Any]):
    """What the proxy has for each URL."""

    def get(self, path: str, default: Any = None) -> Any:
        async def behave(hit: Hit, connection: Connection) -> None:
            found = self[hit.target] if hit.target in self else PAGE  # noqa: SIM401 (this is get)
            await as_behaviour(found)(hit, connection)

        return behave


@pytest.fixture
def proxy(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = sites.add()
    site.pages = World()
    monkeypatch.setenv("http_proxy", site.url("/"))
    monkeypatch.setenv("no_proxy", "")
    return site


def asked(proxy: Site) -> list[str]:
    return sorted({hit.target for hit in proxy.requests})


ON = {"REP_SITEMAPS": True, "RETRY_ENABLED": False}


async def seeded(url: str, settings: dict[str, Any] | None = None) -> CrawlResult:
    result = await crawl(SeededSpider, {**ON, **(settings or {})}, requests=[url])
    result.assert_clean()
    return result


INSIDE = [
    "http://internal/latest/meta-data?x=1",
    "http://127.0.0.1:8080/admin",
    "http://127.1/admin",
    "http://169.254.169.254/latest/",
    "http://10.0.0.1/",
    "http://db.internal/",
]


@pytest.mark.scrapy_api
async def test_sitemaps_never_lead_a_public_site_to_private_hosts(proxy: Site) -> None:
    """Not at once, not by an index, not by a redirect."""
    shop = "http://shop.example"
    good = f"{shop}/good.xml"
    proxy.pages |= {
        f"{shop}/robots.txt": listing(
            *INSIDE, f"{shop}/moved.xml", f"{shop}/index.xml", "http://cdn.example/map.xml", good
        ),
        f"{shop}/moved.xml": redirect("http://internal/moved"),
        f"{shop}/index.xml": index(f"{url}?index" for url in INSIDE),
        "http://cdn.example/map.xml": urlset([f"{shop}/a"]),
        good: urlset([f"{shop}/b", *INSIDE]),
    }
    result = await seeded(f"{shop}/start")
    assert pages(result) == [f"{shop}/a", f"{shop}/b"]
    assert {url.split("/")[2] for url in asked(proxy)} == {"shop.example", "cdn.example"}
    assert len(lines(result, "its host has a private address", level="WARNING")) == 5
    assert result.stat("rep/sitemaps/failed") == 2 * len(INSIDE) + 1
    assert result.stat("rep/sitemaps/rejected/private") == len(INSIDE)


async def test_any_host_is_any_public_one(proxy: Site) -> None:
    shop = "http://shop.example"
    proxy.pages |= {
        f"{shop}/robots.txt": listing(f"{shop}/map.xml"),
        f"{shop}/map.xml": urlset([*INSIDE, "http://other.example/page"]),
    }
    result = await seeded(f"{shop}/start", {"REP_SITEMAP_CROSS_HOST": "any"})
    assert {url.split("/")[2] for url in asked(proxy)} == {"shop.example", "other.example"}
    assert pages(result) == ["http://other.example/page"]
    assert result.stat("rep/sitemaps/rejected/private") == len(INSIDE)


async def test_the_user_may_allow_private_hosts(proxy: Site) -> None:
    shop = "http://shop.example"
    proxy.pages |= {
        f"{shop}/robots.txt": listing("http://internal/map.xml"),
        "http://internal/map.xml": urlset([f"{shop}/a"]),
    }
    result = await seeded(f"{shop}/start", {"REP_PRIVATE_HOSTS": True})
    assert pages(result) == [f"{shop}/a"]


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_redirects_of_robots_txt_that_no_owner_means(proxy: Site) -> None:
    moved = {
        "a": ("http://other.example/admin?delete=1", False),
        "b": ("http://127.0.0.1:8080/robots.txt", False),
        "c": ("http://internal/robots.txt", False),
        "d": ("http://other.example/robots.txt?v=2", True),
        "e": ("http://other.example/files/rules", True),
        "f": ("http://f.example/rules?v=2", True),
    }
    for name, (target, followed) in moved.items():
        proxy.pages[f"http://{name}.example/robots.txt"] = redirect(target)
        if followed:
            proxy.pages[target] = RULES
    wanted = [f"http://{name}.example/private" for name in moved]
    result = await crawl(wanted)
    forbidden = [isinstance(result.failure(url), RobotsDisallowed) for url in wanted]
    assert forbidden == [followed for _, followed in moved.values()]
    refused = {target for target, followed in moved.values() if not followed}
    assert refused.isdisjoint(asked(proxy))
    assert result.stat("rep/redirects/refused") == 3
    result.assert_clean()


@pytest.mark.slow
async def test_one_origin_has_so_many_other_hosts_asked_and_no_more(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sitemaptable.MAX_HOSTS == 100
    monkeypatch.setattr(sitemaptable, "MAX_HOSTS", 4)
    hosts = [sites.add() for _ in range(8)]
    site = sites.add()
    for one in hosts:
        one.set("/map.xml", urlset([site.url(f"/of{one.host}")]))
    site.set("/robots.txt", listing(site.url("/text"), *(one.url("/map.xml") for one in hosts[:2])))
    site.set("/text", "".join(one.url("/page\n") for one in hosts[2:]))
    result = await seeded(site.url("/start"))
    assert len([one for one in hosts if one.requests]) == 4
    left_out = result.stat("rep/sitemaps/rejected/hosts") + result.stat("rep/sitemaps/failed")
    assert left_out == 4


@pytest.mark.slow
async def test_hosts_that_redirects_lead_to_count_as_well(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitemaptable, "MAX_HOSTS", 3)
    hosts = [sites.add(pages={"/map.xml": urlset([])}) for _ in range(6)]
    site = sites.add()
    moved = [site.url(f"/moved{number}") for number in range(6)]
    site.set("/robots.txt", listing(*moved))
    for number, one in enumerate(hosts):
        site.set(f"/moved{number}", redirect(one.url("/map.xml")))
    await seeded(site.url("/start"))
    assert len([one for one in hosts if one.requests]) == 3
