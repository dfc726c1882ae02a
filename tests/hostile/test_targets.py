"""Where sites can't lead a crawl (SECURITY.md). Behind a proxy, all count as public."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import CannotResolveHostError
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins import targets as targets_module
from scrapy_rep.origins.answer import RedirectRefused
from scrapy_rep.origins.targets import Targets, is_private_host
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding import spool as sitemaptable
from tests.helpers import names
from tests.helpers.behaviours import RULES, as_behaviour, in_turn, redirect
from tests.helpers.crawling import (
    DAY,
    DOWN,
    NO,
    OK,
    Clock,
    StepSpider,
    crawl,
    run_settings,
)
from tests.helpers.handlers import WrappedHandler
from tests.helpers.log import lines
from tests.helpers.robots_command import robots_crawls
from tests.helpers.servers import Connection, Hit, Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, listing, pages, urlset

# The first and the last address of each network that is not public, or one that leads there.
PRIVATE = [
    # Spellings that operating systems accept.
    "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0",
    "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255",  # noqa: S104 (nothing is bound)
    "127.0.0.1", "127.255.255.255", "168.63.129.16", "169.254.0.0", "169.254.169.254",
    "169.254.255.255", "172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.192", "192.0.0.255",
    "192.0.2.0", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.0", "239.255.255.255", "240.0.0.0", "255.255.255.255",
    "[::]", "[::1]", "[::127.0.0.1]", "[::8.8.8.8]", "[::ffff:0:127.0.0.1]", "[::ffff:0:8.8.8.8]",
    "[64:ff9b:1::]", "[64:ff9b:1::8.8.8.8]", "[100::1]", "[1fff::1]", "[4000::1]", "[5f00::1]",
    "[fc00::]", "[fd00::1]", "[fe80::1]", "[fe80::1%eth0]", "[fec0::]", "[feff::1]", "[ff02::1]",
    "[2001:2::1]", "[2001:10::1]", "[2001:1ff::1]", "[2001:db8::1]", "[3fff::1]", "[3fff:fff::1]",
    # IPv4 within.
    "[::ffff:127.0.0.1]", "[::ffff:a00:1]", "[64:ff9b::7f00:1]", "[64:ff9b::192.0.0.192]",
    "[2002:7f00:1::]", "[2002:a00:1::808:808]",
    "[2001:0:808:808::80ff:fffe]", "[2001:0:7f00:1::f7f7:f7f7]",  # Teredo: client, server
    "localhost", "internal", "a.localhost", "printer.local", "router.home.arpa", "api.internal",
    "api.internal.", "localhost.",
]  # fmt: skip
# Their neighbours.
PUBLIC = [
    "1.0.0.0", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255", "169.255.0.0",
    "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "93.184.215.14",
    "[2000::1]", "[2001:200::1]", "[2001:4860:4860::8888]", "[2003::1]", "[3ffe:ffff::1]",
    "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2002:808:808::]", "[2001:0:808:808::f7f7:f7f7]",
]  # fmt: skip
NAMES = [
    *(
        "example.com",
        "localhost.example.com",
        "notlocal.example",
        "xn--bcher-kva.example",
    ),
    "1.2.3.4.example",
]


def test_hosts_are_private_public_or_names() -> None:
    assert {host: is_private_host(host) for host in PRIVATE} == dict.fromkeys(
        PRIVATE, True
    )
    assert {host: is_private_host(host) for host in PUBLIC} == dict.fromkeys(
        PUBLIC, False
    )
    assert {host: is_private_host(host) for host in NAMES} == dict.fromkeys(NAMES, None)


SHOP, CDN, INSIDE_TEST, UNKNOWN, DUAL, LITERAL = (
    Origin.from_url(f"http://{host}/")
    for host in (
        "shop.test",
        "cdn.test",
        "inside.test",
        "unknown.test",
        "dual.test",
        "127.0.0.9",
    )
)

FOUND = {
    "inside.test": ["127.0.0.5"],
    "shop.test": ["8.8.8.8"],
    "cdn.test": ["2001:4860:4860::8888"],
    "dual.test": ["8.8.8.8", "10.0.0.1"],
}


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    found = dict(FOUND)

    async def look_up(host: str) -> list[str]:
        return found.get(host, [])

    monkeypatch.setattr("scrapy_rep.origins.targets.look_up", look_up)
    monkeypatch.setattr(Targets, "watch", lambda _: None)  # no connections
    return found


def fresh(**settings: Any) -> Targets:
    crawler = get_crawler(settings_dict={**run_settings(), **settings})
    crawler.spider = Spider("shop")
    return Targets(crawler, private_hosts=False)


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.download
async def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("inside.test", "shop.test", "cdn.test"):
        monkeypatch.setitem(names.ADDRESSES, name, FOUND[name][0])
    targets = fresh()
    for _ in "twice":
        assert all([await targets.refuses(one, SHOP) for one in (INSIDE_TEST, LITERAL)])
        assert not any([await targets.refuses(one, SHOP) for one in (SHOP, CDN)])
        assert not await targets.refuses(UNKNOWN, SHOP)
        assert not any(
            [await targets.refuses(one, INSIDE_TEST) for one in (LITERAL, SHOP)]
        )
        assert not await targets.refuses(LITERAL, LITERAL)
    assert not targets.check_address("unknown.test", "10.0.0.1"), "by then it is known"
    assert await targets.refuses(UNKNOWN, SHOP)
    targets.unwatch()
    everything = Targets(get_crawler(), private_hosts=True)
    assert not await everything.refuses(INSIDE_TEST, SHOP)


async def test_a_failed_look_up_is_no_verdict(looked_up: dict[str, list[str]]) -> None:
    """A captive portal, say, answers for a name until somebody logs in."""
    targets, refused = fresh(), []
    for addresses in (["127.0.0.1"], [], ["8.8.4.4"]):
        looked_up["unknown.test"] = addresses
        refused.append(await targets.refuses(UNKNOWN, SHOP))
    assert refused == [True, True, False]


async def test_who_has_a_public_address_is_no_intranet(
    looked_up: dict[str, list[str]],
) -> None:
    targets = fresh()
    assert await targets.refuses(LITERAL, DUAL)
    assert await targets.refuses(DUAL, SHOP)
    assert not await targets.refuses(LITERAL, INSIDE_TEST)
    # An owner of a name can say that it is inside. It was not when it answered.
    looked_up["shop.test"] = ["127.0.0.1"]
    targets = fresh()
    assert targets.check_address("shop.test", "8.8.8.8")
    assert await targets.refuses(LITERAL, SHOP)


async def test_hosts_that_public_sites_named_get_no_private_address(
    looked_up: dict[str, list[str]],
) -> None:
    """Others do: what the user's own requests lead to is not our business."""
    targets = fresh()
    assert targets.check_address("cdn.test", "10.0.0.1")
    assert targets.check_address("shop.test", "8.8.8.8")
    await targets.refuses(CDN, SHOP)
    await targets.refuses(UNKNOWN, SHOP)
    await targets.refuses(SHOP, SHOP)  # itself, at another port
    await targets.refuses(INSIDE_TEST, SHOP)
    for host in ("cdn.test", "unknown.test", "shop.test"):
        assert targets.check_address(host, "8.8.8.8")
        assert not targets.check_address(host, "10.0.0.1")
    assert targets.check_address("inside.test", "127.0.0.5")
    assert not targets.check_address("cdn.test.", "10.0.0.1")


async def test_where_an_answer_came_from(looked_up: dict[str, list[str]]) -> None:
    """Of a download handler that looks names up in its own way."""
    targets = fresh()
    await targets.refuses(CDN, SHOP)
    request = Request("http://cdn.test/map.xml")
    targets.check_answer(
        request, Response(request.url, ip_address=ip_address("8.8.8.8"))
    )
    inside = Response(request.url, ip_address=ip_address("127.0.0.1"))
    with pytest.raises(CannotResolveHostError):
        targets.check_answer(request, inside)
    targets.check_answer(
        request.replace(meta={"proxy": "http://127.0.0.1:3128"}), inside
    )


class OwnResolver(WrappedHandler):
    """Looks names up in its own way, and finds moved.test inside."""

    async def download_request(self, request: Request) -> Response:
        response = await super().download_request(request)
        if "moved.test" in request.url:
            response = response.replace(ip_address=ip_address("10.0.0.1"))
        return response


async def test_no_robots_txt_counts_that_came_from_inside(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_private = targets_module.is_private_address
    monkeypatch.setattr(
        targets_module,
        "is_private_address",
        lambda text: False if text.startswith("127.") else is_private(text),
    )
    shop, moved = sites.add(name="shop.test"), sites.add(RULES, name="moved.test")
    shop.set("/robots.txt", redirect(moved.url("/robots.txt")))
    settings = {
        "DOWNLOAD_HANDLERS": {"http": OwnResolver},
        "REP_RETRY_DELAY": 0.05,
        "REP_HOLD_MAX_WAIT": 0.5,
    }
    result = await crawl(shop.url("/private"), settings)
    error = result.failure(shop.url("/private"))
    assert isinstance(error, RobotsUnreachable)
    assert "moved.test answered from a private address" in str(error)
    assert lines(result, "Not connecting to moved.test at 10.0.0.1")
    result = await crawl(shop.url("/private"), {**settings, "REP_PRIVATE_HOSTS": True})
    assert result.disallowed(shop.url("/private"))


HTTP = {"http_proxy": "http://proxy.example:3128"}
# Environment, settings, and whether a name that resolves to a private address is refused.
PROXIES: list[tuple[dict[str, str], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"no_proxy": "localhost"}, {}, True),
    *(
        ({name: HTTP["http_proxy"]}, {}, True)
        for name in ("ftp_proxy", "https_proxy", "all_proxy")
    ),
    *(
        ({**HTTP, "no_proxy": hosts}, {}, True)
        for hosts in ("inside.test", ".test", "*")
    ),
    (HTTP, {"HTTPPROXY_ENABLED": False}, True),
    (HTTP, {}, False),
    ({**HTTP, "no_proxy": "shop.test"}, {}, False),
]


@pytest.mark.scrapy_api
async def test_a_proxy_counts_for_the_urls_that_it_is_used_for(
    looked_up: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables, settings, refused in PROXIES:
        with monkeypatch.context() as patch:
            for name in (
                "http_proxy",
                "https_proxy",
                "ftp_proxy",
                "all_proxy",
                "no_proxy",
            ):
                patch.delenv(name, raising=False)
                patch.delenv(name.upper(), raising=False)
            for name, value in variables.items():
                patch.setenv(name, value)
            targets = fresh(**settings)
            assert bool(await targets.refuses(INSIDE_TEST, SHOP)) == refused, (
                variables,
                settings,
            )
            assert await targets.refuses(LITERAL, SHOP)


async def test_a_network_without_name_servers_behind_a_proxy_of_the_project(
    looked_up: dict[str, list[str]],
) -> None:
    targets = fresh()
    request = Request(
        "http://shop.test/robots.txt", meta={"proxy": "http://proxy.example:3128"}
    )
    targets.check_answer(
        request, Response(request.url, ip_address=ip_address("127.0.0.1"))
    )
    assert not await targets.refuses(UNKNOWN, SHOP)
    assert await targets.refuses(INSIDE_TEST, SHOP)
    assert not targets.check_address("unknown.test", "127.0.0.1")


@pytest.fixture
def proxy(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Its pages are those of URLs."""
    site = sites.add()
    monkeypatch.setenv("http_proxy", site.url("/"))
    monkeypatch.setenv("no_proxy", "")
    return site


def asked(proxy: Site) -> list[str]:
    return sorted({hit.target for hit in proxy.requests})


ON = {"REP_SITEMAPS": True, "RETRY_ENABLED": False}
INSIDE = [
    "http://internal/latest/meta-data?x=1",
    "http://127.0.0.1:8080/admin",
    "http://127.1/admin",
    "http://169.254.169.254/latest/",
    "http://10.0.0.1/",
    "http://db.internal/",
]

ANY = {"REP_SITEMAP_CROSS_HOST": "any"}


@pytest.mark.parametrize("settings", [{}, ANY, {**ANY, "REP_PRIVATE_HOSTS": True}])
async def test_sitemaps_never_lead_a_public_site_to_private_hosts(
    proxy: Site, settings: dict[str, Any]
) -> None:
    """Nor by an index or a redirect, unless the user allows it. "any" host is any public one."""
    shop, inside = "http://shop.example", {url.split("/")[2] for url in INSIDE}
    pages_of_urls = {
        f"{shop}/robots.txt": listing(
            *(*INSIDE, f"{shop}/moved.xml", f"{shop}/index.xml"),
            *("http://cdn.example/map.xml", f"{shop}/map.xml"),
        ),
        f"{shop}/moved.xml": redirect("http://internal/moved"),
        f"{shop}/index.xml": index(f"{url}?index" for url in INSIDE),
        "http://cdn.example/map.xml": urlset([f"{shop}/a"]),
        f"{shop}/map.xml": urlset(
            ["http://other.example/b", *(f"{url}?page" for url in INSIDE)]
        ),
    }
    for url, content in pages_of_urls.items():
        proxy.set(url, content)
    result = await crawl(SeededSpider, {**ON, **settings}, requests=[f"{shop}/start"])
    result.assert_clean()
    reached = inside & {url.split("/")[2] for url in asked(proxy)}
    assert reached == (inside if "REP_PRIVATE_HOSTS" in settings else set())
    if not reached:
        wanted = [f"{shop}/a", "http://other.example/b"]
        assert sorted(pages(result)) == sorted(wanted if settings else wanted[:1])
        assert (
            len(lines(result, "its host has a private address", level="WARNING")) == 5
        )
        assert result.stat("rep/sitemaps/failed") == 2 * len(INSIDE) + 1
        assert result.stat("rep/sitemaps/rejected/private") == len(INSIDE)


@pytest.mark.download
async def test_redirects_of_robots_txt_lead_to_any_public_url(proxy: Site) -> None:
    """As Google follows them. What is refused is no permission."""
    moved = {
        "a": ("http://other.example/robots.php?lang=en", True),
        "b": ("http://127.0.0.1:8080/robots.txt", False),
        "c": ("http://internal/robots.txt", False),
        "d": ("http://other.example/robots.txt?v=2", True),
        "e": ("http://other.example/files/rules", True),
        "f": ("http://f.example/rules?v=2", True),
        "g": ("http://0.0.0.0/", False),
    }
    for name, (target, followed) in moved.items():
        proxy.set(f"http://{name}.example/robots.txt", redirect(target))
        if followed:
            proxy.set(target, RULES)
    wanted = {name: f"http://{name}.example/private" for name in moved}
    result = await crawl(wanted.values())
    for name, (target, followed) in moved.items():
        error = result.failure(wanted[name])
        assert isinstance(error, RobotsDisallowed if followed else RobotsUnreachable)
        if not followed:
            assert f"not following the redirect to {target} (the address is pr" in str(
                error
            )
            assert isinstance(error.__cause__, RedirectRefused)
    refused = {target for target, followed in moved.values() if not followed}
    assert refused.isdisjoint(asked(proxy))
    assert result.stat("rep/redirects/refused") == 3
    result.assert_clean()


@pytest.mark.usefixtures("in_time")
async def test_a_refused_redirect_replaces_no_copy_and_never_permits(
    proxy: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it lasts: a captive portal, a name that leads to 0.0.0.0 from now on."""
    clock = Clock().install(monkeypatch)
    inside = redirect("http://0.0.0.0/robots.txt")
    proxy.set("http://copy.example/robots.txt", in_turn(RULES, inside))
    proxy.set("http://none.example/robots.txt", inside)
    urls = [
        f"http://{name}.example/{path}"
        for name in ("copy", "none")
        for path in ("private", "a")
    ]
    steps = [*urls, *([DAY + 1, *urls] * 35)]
    result = await crawl(StepSpider, steps=steps, clock=clock)
    assert isinstance(result.spider, StepSpider)
    assert result.spider.outcomes == [NO, OK, DOWN, DOWN] * 36
    assert (
        len(lines(result, "not following the redirect", "so an older copy applies"))
        >= 1
    )
    result.assert_clean()


class Inside(NamedTuple):
    site: Site
    """Has a private address. Those of all others count as public."""
    starts: list[str]
    """Of sites whose robots.txt and sitemaps lead there."""
    moved: list[str]
    """Pages that do."""


@pytest.fixture
def inside(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """First look-ups of fails-1.test fail, of changes-1.test are public; later ones are private."""
    site, public, asked = sites.add(), sites.add(name="public-0.test"), set()
    is_private, resolve = targets_module.is_private_address, names.resolve

    def changing(name: str) -> str | None:
        first = {"fails": None, "changes": public.host}
        if (kind := name.partition("-")[0]) not in first:
            return resolve(name)
        is_first = name not in asked
        asked.add(name)
        return first[kind] if is_first else site.host

    monkeypatch.setattr(names, "resolve", changing)
    monkeypatch.setattr(
        targets_module,
        "is_private_address",
        lambda text: text == site.host if text.startswith("127.") else is_private(text),
    )
    one, two, three, *four = (
        sites.add(name=f"public-{number}.test") for number in range(1, 6)
    )
    fails, changes = (
        f"http://{kind}-{{}}.test:{site.port}{{}}" for kind in ("fails", "changes")
    )
    one.set("/robots.txt", redirect(fails.format(1, "/latest/meta")))
    two.set("/robots.txt", redirect(changes.format(1, "/latest/meta")))
    maps = fails.format(2, "/map"), changes.format(2, "/map"), three.url("/map.txt")
    three.set("/robots.txt", listing(*maps))
    three.set(
        "/map.txt", "\n".join((fails.format(3, "/page"), changes.format(3, "/page")))
    )
    public.set("/robots.txt", redirect(changes.format(4, "/latest/meta")))
    for public_site, target in zip(
        four, (site.url("/page"), fails.format(5, "/page")), strict=True
    ):
        public_site.set("/page", redirect(target))
    starts = [
        *map(Site.url, (one, two, three)),
        f"http://changes-4.test:{public.port}/",
    ]
    return Inside(site, starts, [one.url("/page") for one in four])


@pytest.mark.loop
@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize("allowed", [False, True])
async def test_public_sites_never_lead_inside(inside: Inside, allowed: bool) -> None:
    """Unless the user lets them. Names change in time only because they are checked."""
    settings = {**ON, **ANY, "REP_UNREACHABLE": "hold", "REP_RETRY_DELAY": 0.05}
    settings |= {
        "REP_PRIVATE_HOSTS": allowed,
        "REP_HOLD_MAX_WAIT": 30 if allowed else 0.5,
    }
    result = await crawl(SeededSpider, settings, requests=inside.starts)
    result.assert_clean()
    led = {f"{hit.header('Host')}{hit.path}" for hit in inside.site.requests}
    if allowed:
        wanted = {
            "fails-1.test": "/latest/meta",
            "fails-2.test": "/map",
            "fails-3.test": "/page",
        }
        wanted |= {"changes-4.test": "/latest/meta"}
        assert led >= {
            f"{name}:{inside.site.port}{path}" for name, path in wanted.items()
        }
    else:
        assert led == set()
        assert lines(result, "Not connecting to changes-1.test at")


async def test_commands_do_not_lead_inside_either(
    inside: Inside, tmp_path: Path
) -> None:
    await robots_crawls(tmp_path, "--sitemaps", *inside.starts)
    done = await robots_crawls(tmp_path, "--page", *inside.moved)
    assert "/page: not read: its host has a private address" in done.out
    assert inside.site.requests == []


async def test_a_host_that_lists_a_sitemap_can_not_move_inside(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    private: set[str] = set()
    monkeypatch.setattr(targets_module, "is_private_address", private.__contains__)
    # Not every download handler tells the address: look-ups are watched from the start.
    monkeypatch.setattr(Targets, "check_answer", lambda *_: None)
    shop, moved = sites.add(name="shop.test"), sites.add(name="moved.test")

    async def move(hit: Hit, connection: Connection) -> None:
        while not moved.requests:  # so its robots.txt is known
            await asyncio.sleep(0.01)
        private.add(moved.host)
        body = urlset([shop.url("/a"), moved.url("/admin")])
        await as_behaviour(body)(hit, connection)

    for site in (shop, moved):
        site.set("/robots.txt", listing(shop.url("/map.xml")))
    shop.set("/map.xml", move)
    result = await crawl(
        SeededSpider, ON, requests=[moved.url("/start"), shop.url("/start")]
    )
    assert pages(result) == [shop.url("/a")]


@pytest.mark.slow
async def test_one_origin_has_so_many_other_hosts_asked_and_no_more(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sitemaptable.MAX_HOSTS == 100
    monkeypatch.setattr(sitemaptable, "MAX_HOSTS", 4)
    hosts, targets = [sites.add() for _ in range(8)], [sites.add() for _ in range(6)]
    site, mover = sites.add(), sites.add()
    for by, some in ((site, hosts), (mover, targets)):
        for one in some:
            one.set("/map.xml", urlset([by.url(f"/of{one.host}")]))
    site.set(
        "/robots.txt",
        listing(site.url("/text"), *(one.url("/map.xml") for one in hosts[:2])),
    )
    site.set("/text", "".join(one.url("/page\n") for one in hosts[2:]))
    mover.set(
        "/robots.txt", listing(*(mover.url(f"/moved{number}") for number in range(6)))
    )
    for number, one in enumerate(targets):
        mover.set(f"/moved{number}", redirect(one.url("/map.xml")))
    result = await crawl(
        SeededSpider, ON, requests=[site.url("/start"), mover.url("/start")]
    )
    result.assert_clean()
    assert [
        len([one for one in some if one.requests]) for some in (hosts, targets)
    ] == [4, 4]
    left_out = result.stat("rep/sitemaps/rejected/hosts") + result.stat(
        "rep/sitemaps/failed"
    )
    assert left_out >= 4 + 2
