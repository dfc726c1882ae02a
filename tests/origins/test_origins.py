"""REP.md sections 1 and 2: whose robots.txt counts; redirects; the fetch gets nothing from page requests."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
from scrapy import Request
from scrapy.settings import default_settings
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import RULES, answer, redirect
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

NO_RULES = "User-agent: *\nDisallow:\n"


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_each_scheme_host_and_port_has_its_own_rules(sites: Sites) -> None:
    """So have two names of one address, and a sub domain and its parent."""
    plain = sites.add(robots=NO_RULES)
    secure = sites.add(robots=RULES, host=plain.host, tls=True)
    port = sites.add(robots=RULES, host=plain.host)
    named = sites.add(robots=RULES, name="shop.test")
    address = named.url("/private").replace("shop.test", named.host)
    sub = sites.add(robots=NO_RULES, name="www.shop.test")
    forbidden = [*(site.url("/private") for site in (secure, port, named)), address]
    allowed = [plain.url("/private"), sub.url("/private")]
    result = await crawl([*forbidden, *allowed])
    assert [result.disallowed(url) for url in forbidden] == [True] * 4
    assert result.responses == dict.fromkeys(allowed, 200)
    assert [site.robots_fetches for site in (plain, secure, port, named, sub)] == [
        1,
        1,
        1,
        2,
        1,
    ]
    result.assert_clean()


@pytest.mark.scrapy_api
async def test_spellings_of_an_origin_share_its_rules(sites: Sites) -> None:
    case, puny = (
        sites.add(robots=RULES, name=name)
        for name in ("case.test", "xn--exmple-cua.test")
    )
    user, private = sites.add(robots=RULES), "/private"
    names = (None, "alice", "bob:secret", "carol:%40%3A")
    table = {
        case: [case.url(private), f"http://CASE.Test:{case.port}/private"],
        puny: [puny.url(private), f"http://ex\u00e4mple.test:{puny.port}/private"],
        user: [user.url(private, user=name) for name in names],
    }
    with suppress(OSError):  # port 80 is taken, or needs privileges
        site = sites.add(robots=RULES, port=80)
        table[site] = [f"http://{site.host}{port}/private" for port in ("", ":80")]
    with suppress(OSError):  # no IPv6 here
        site = sites.add(robots=RULES, host="::1")
        if Request(site.url()).url == site.url():  # older w3lib takes the brackets away
            table[site] = [site.url(private)]
    result = await crawl([url for urls in table.values() for url in urls])
    with every_row() as row:
        for site, urls in table.items():
            with row(site.name):
                assert all(result.disallowed(url) for url in urls)
                [hit] = site.requests
                assert hit.target == "/robots.txt"
                assert hit.header("Host") == site.url("").removeprefix(
                    "http://"
                ).removesuffix(":80")
                assert hit.header("Authorization") is None
    result.assert_clean()


async def test_robots_txt_itself_is_always_allowed(sites: Sites) -> None:
    """RFC 9309 section 2.2.2: "The /robots.txt URI is implicitly allowed." In that case, at the root."""
    some = [sites.add(robots=rules) for rules in ("User-agent: *\nDisallow: /\n", 503)]
    pages = [
        site.url(path)
        for site in some
        for path in ("/page", "/Robots.txt", "/a/robots.txt")
    ]
    files = [site.url("/robots.txt") for site in some]
    result = await crawl([*files, *pages], {"RETRY_ENABLED": False})
    assert [site.pages_asked for site in some] == [[], []]
    assert not any(result.disallowed(url) for url in files)
    # The spider's own request, and ours for the pages.
    assert [site.robots_fetches for site in some] == [2, 2]
    result.assert_clean()


async def test_what_no_robots_txt_is_asked_for(sites: Sites) -> None:
    page, site = f"file://{__file__}", sites.add(robots=RULES)
    disobedient = Request(site.url("/private"), meta={"dont_obey_robotstxt": True})
    result = await crawl(["data:text/plain,hello", page, disobedient])
    assert result.responses == dict.fromkeys(
        ["data:text/plain,hello", page, disobedient.url], 200
    )
    assert result.stat("robotstxt/request_count") == 0
    assert [hit.target for hit in site.requests] == ["/private"]
    result.assert_clean()


def chain(sites: Sites, hops: int, *, hosts: bool) -> list[Site]:
    """Sites whose first answers with that many redirects, over as many hosts if wished."""
    many = (
        [sites.add() for _ in range(hops + 1)] if hosts else [sites.add()] * (hops + 1)
    )
    for number in range(hops):
        path = "/robots.txt" if number == 0 else f"/hop{number}"
        many[number].set(path, redirect(many[number + 1].url(f"/hop{number + 1}")))
    many[hops].set(f"/hop{hops}", RULES)
    return many


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_five_hops_are_followed_and_the_sixth_is_not(sites: Sites) -> None:
    kinds = product((1, 5, 6), (False, True))
    chains = [(hops, chain(sites, hops, hosts=hosts)) for hops, hosts in kinds]
    resolved, pages = Resolved(), [many[0].url("/private") for _, many in chains]
    result = await crawl(pages, signal_handlers=resolved.handlers)
    with every_row() as row:
        for hops, many in chains:
            with row((hops, many[0] is not many[1])):
                [one] = resolved.of(many[0].url())
                if hops <= 5:
                    assert (one["outcome"], one["hops"]) == (Outcome.RULES, hops)
                    assert one["url"] == many[-1].url(f"/hop{hops}")
                else:
                    assert one["outcome"] is Outcome.MISSING
                    assert many[6].count("/hop6") == 0
                assert result.disallowed(many[0].url("/private")) is (hops <= 5)
    result.assert_clean()


async def test_rules_belong_to_the_origin_first_asked(sites: Sites) -> None:
    """They do not apply to the host that delivered them, and that one's do not apply here."""
    other = "User-agent: *\nDisallow: /public\nDisallow: /shared"
    delivering = sites.add(robots=other, pages={"/shared/rules": RULES})
    asked = sites.add(robots=redirect(delivering.url("/shared/rules")))
    # The usual case: http:// redirects to https://. Each origin asks.
    secure = sites.add(robots=RULES, tls=True)
    plain = sites.add(robots=redirect(secure.url("/robots.txt")), host=secure.host)
    some = (asked, delivering, plain, secure)
    urls = [site.url(path) for site in some for path in ("/private", "/public")]
    result = await crawl(urls)
    refused = [result.disallowed(url) for url in urls]
    assert refused == [True, False, False, True, *[True, False] * 2]
    assert (plain.count("/robots.txt"), secure.count("/robots.txt")) == (1, 2)
    assert delivering.count("/robots.txt") == 1  # not asked for by the hop
    result.assert_clean()


LEADS_NOWHERE = {
    "none": None,
    "empty": "",
    "blank": "   ",
    "a loop": "/robots.txt",
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1/robots.txt",
    "data": "data:text/plain,User-agent:%20*%0ADisallow:%20/",
    "javascript": "javascript:alert(1)",
    "unbalanced bracket": "http://[",
    "no host but a path": "http:///robots.txt",
    "bad port": "http://127.0.0.1:99999/robots.txt",
    "a missing page": "/missing",
}


HTML = {
    "meta refresh": '<meta http-equiv="refresh" content="0; url=/rules">',
    "JavaScript": '<script>location.href = "/rules"</script>',
    "frame": '<frameset><frame src="/rules"></frameset>',
}


async def test_what_leads_nowhere_counts_as_missing(sites: Sites) -> None:
    """As do loops; and redirects in HTML are none."""
    pages, table = {"/rules": RULES, "/missing": 404}, dict[str, Site]()
    for name, to in LEADS_NOWHERE.items():
        table[name] = sites.add(robots=redirect(to), pages=pages)
    for name, head in HTML.items():
        page = answer(f"<html><head>{head}</head></html>", type="text/html")
        table[name] = sites.add(robots=page, pages=pages)
    one, other = table["a longer loop"], _ = sites.add(), sites.add()
    one.set("/robots.txt", redirect(other.url("/robots.txt")))
    other.set("/robots.txt", redirect(one.url("/robots.txt")))
    resolved, every = Resolved(), [site.url("/private") for site in table.values()]
    result = await crawl(every, signal_handlers=resolved.handlers)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert result.status(site.url("/private")) == 200
                wanted = Outcome.RULES if name in HTML else Outcome.MISSING
                assert [one["outcome"] for one in resolved.of(site.url())] == [wanted]
                assert (site.count("/rules"), site.robots_fetches) == (0, 1)
    result.assert_clean()


USABLE = {
    "relative": "rules",
    "absolute path": "/rules",
    "with a fragment": "/rules#top",
    "with spaces around": "  /rules ",
    "no scheme": "//{host}/rules",
    "upper case scheme": "HTTP://{host}/rules",
    "with user info": "//user:pass@{host}/rules",
    "dots": "/a/../rules",
    # As they came (the tests write headers as Latin-1, byte by character).
    "UTF-8": "/r\u00c3\u00a8gles",
}
if (
    is_reactor_installed()
):  # else Scrapy is on aiohttp, and fails on headers that are not UTF-8
    USABLE["Latin-1"] = "/r\u00e8gles"


@pytest.mark.download
async def test_usable_location_is_followed(sites: Sites) -> None:
    """Whatever the status. Whether a client resolves dots, or the server does, is not tested here."""
    pages = dict.fromkeys(("/rules", "/a/../rules", "/r%C3%A8gles", "/r%E8gles"), RULES)
    table = {name: sites.add(pages=pages) for name in USABLE}
    for name, site in table.items():
        location = USABLE[name].format(host=f"{site.host}:{site.port}")
        site.set("/robots.txt", redirect(location))
    for status in (302, 303, 307, 308):
        table[str(status)] = sites.add(robots=redirect("/rules", status), pages=pages)
    result = await crawl([site.url("/private") for site in table.values()])
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert result.disallowed(site.url("/private"))
                assert not any(hit.header("Authorization") for hit in site.requests)
                assert [hit.method for hit in site.requests] == ["GET", "GET"]
    result.assert_clean()


async def test_unreachable_behind_a_redirect(sites: Sites) -> None:
    targets = [sites.add(pages={"/page": status}).url("/page") for status in (429, 503)]
    table = [
        sites.add(robots=redirect(to))
        for to in (*targets, f"{sites.refused()}/robots.txt")
    ]
    result = await crawl([site.url("/private") for site in table])
    for site in table:
        error = result.failure(site.url("/private"))
        assert isinstance(error, RobotsUnreachable)
        assert str(error.origin) == site.url("")
    result.assert_clean()


@pytest.mark.download
async def test_cookies_and_logins_of_pages_and_of_robots_txt_do_not_mix(
    sites: Sites,
) -> None:
    setting = [("Set-Cookie", "robots=1; Path=/")]
    other = sites.add(pages={"/rules": answer(RULES, headers=setting)})
    site = sites.add(
        robots=answer(b"", 302, [("Location", other.url("/rules")), *setting])
    )
    login = {"Authorization": "Bearer secret"}
    requests = [
        Request(site.url("/x"), cookies={"session": "secret"}, headers=login),
        Request(site.url("/private"), headers=login),
        Request(site.url("/y"), headers={"Cookie": "raw=secret"}),
        Request(site.url("/z"), meta={"http_user": "user", "http_pass": "secret"}),
        Request(other.url("/z"), cookies={"other": "secret"}),
    ]
    result = await crawl(requests, {"CONCURRENT_REQUESTS": 1})
    assert result.disallowed(site.url("/private"))
    assert len(result.responses) == 4
    robots_hits = (
        site.hits("/robots.txt") + other.hits("/rules") + other.hits("/robots.txt")
    )
    assert len(robots_hits) == 3
    for name in ("Cookie", "Authorization"):
        assert [hit.header(name) for hit in robots_hits] == [None, None, None]
    [page] = site.hits("/x")
    assert page.header("Cookie") == "session=secret"
    assert page.header("Authorization") == login["Authorization"]
    assert "robots=1" not in str(
        [hit.headers for hit in site.requests + other.requests]
    )
    result.assert_clean()


@pytest.mark.scrapy_api
async def test_http_auth_of_the_project_stays_in_its_domain(sites: Sites) -> None:
    """HTTPAUTH_DOMAIN is where the user wants it sent, robots.txt included; hops leave it."""
    other = sites.add(name="other.test", pages={"/rules": RULES})
    site = sites.add(name="secret.test", robots=redirect(other.url("/rules")))
    domain = (
        f"secret.test:{site.port}"  # Scrapy compares it with the port, if there is one
    )
    urls = [site.url("/x"), site.url("/private")]
    if hasattr(default_settings, "HTTPAUTH_USER"):
        settings = {
            "HTTPAUTH_USER": "user",
            "HTTPAUTH_PASS": "pass",
            "HTTPAUTH_DOMAIN": domain,
        }
        result = await crawl(urls, settings)
    else:  # by attributes of the spider, in older Scrapy

        class HttpAuthSpider(ListSpider):
            http_user, http_pass, http_auth_domain = "user", "pass", domain

        result = await crawl(HttpAuthSpider, requests=urls)
    assert result.disallowed(site.url("/private"))
    assert site.hits("/x")[0].header("Authorization") == "Basic dXNlcjpwYXNz"
    assert [hit.header("Authorization") for hit in other.requests] == [None]
    result.assert_clean()


async def test_meta_of_pages_stays_with_pages(sites: Sites) -> None:
    """Nor does a browser or API download handler fetch robots.txt for them."""
    site, seen = sites.add(robots=RULES), list[Request]()

    class RobotsSpy:
        def process_request(self, request: Request) -> None:
            if request.url.endswith("/robots.txt"):
                seen.append(request)

    browser = {"playwright": True, "zyte_api": {"browserHtml": True}}
    meta = {**browser, "cookiejar": 7, "download_slot": "a"}
    headers = {"X-Secret": "1", "Referer": "http://example.com/"}
    more = {"method": "POST", "body": b"secret", "cb_kwargs": {"mine": 1}}
    request = Request(site.url("/x"), headers=headers, meta=meta, **more)  # type: ignore[arg-type]
    result = await crawl(request, {"DOWNLOADER_MIDDLEWARES": {RobotsSpy: 50}})
    assert result.status(site.url("/x")) == 200
    [robots] = seen
    assert not any(robots.meta.get(key) == value for key, value in meta.items())
    assert robots.cb_kwargs == {}
    [hit] = site.hits("/robots.txt")
    assert (hit.method, hit.body) == ("GET", b"")
    for name in (*headers, "If-None-Match", "If-Modified-Since", "Range"):
        assert hit.header(name) is None
    result.assert_clean()
