"""REP.md sections 1 and 2: whose robots.txt a URL asks for, and how often."""

from __future__ import annotations

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

NO_RULES = "User-agent: *\nDisallow:\n"


def disallowed(result: CrawlResult, url: str) -> bool:
    return isinstance(result.failure(url), RobotsDisallowed)


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
    assert [disallowed(result, url) for url in forbidden] == [True] * 4
    assert result.responses == dict.fromkeys(allowed, 200)
    assert [site.robots_fetches for site in (plain, secure, port, named, sub)] == [1, 1, 1, 2, 1]
    result.assert_clean()


def spellings(sites: Sites) -> dict[str, tuple[Site, list[str]]]:
    """Of one origin each."""
    case, puny = (
        sites.add(robots=RULES, name=name) for name in ("case.test", "xn--exmple-cua.test")
    )
    user, private = sites.add(robots=RULES), "/private"
    found = {
        "case": (case, [case.url(private), f"http://CASE.Test:{case.port}/private"]),
        "punycode": (puny, [puny.url(private), f"http://ex\u00e4mple.test:{puny.port}/private"]),
        "user info": (
            user,
            [
                user.url(private, user=name)
                for name in (None, "alice", "bob:secret", "carol:%40%3A")
            ],
        ),
    }
    try:
        site = sites.add(robots=RULES, port=80)
        found["port 80"] = site, [f"http://{site.host}{port}/private" for port in ("", ":80")]
    except OSError:
        pass  # this port cannot be had here
    return found


@pytest.mark.scrapy_api
async def test_spellings_of_an_origin_share_its_rules(sites: Sites) -> None:
    table = spellings(sites)
    result = await crawl([url for _, urls in table.values() for url in urls])
    with every_row() as row:
        for name, (site, urls) in table.items():
            with row(name):
                assert all(disallowed(result, url) for url in urls)
                [hit] = site.requests
                assert hit.target == "/robots.txt"
                assert hit.header("Authorization") is None
    result.assert_clean()


async def test_an_ipv6_site_is_crawled_by_its_rules(sites: Sites) -> None:
    try:
        site = sites.add(robots=RULES, host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    if Request(site.url()).url != site.url():
        pytest.skip("this w3lib takes the brackets from IPv6 addresses")
    result = await crawl([site.url("/private"), site.url("/public")])
    assert site.url("").startswith("http://[::1]:")
    assert disallowed(result, site.url("/private"))
    assert result.status(site.url("/public")) == 200
    assert site.hits("/robots.txt")[0].header("Host") == f"[::1]:{site.port}"


@pytest.mark.loop
async def test_many_requests_share_one_fetch_or_failure(sites: Sites) -> None:
    """However many wait for it: 20 requests are not 20 attempts, before or after it."""
    up, down = sites.add(robots=after(0.2, RULES)), sites.add(robots=after(0.2, 503))
    pages = [up.url(f"/page{number}") for number in range(10)]
    private = [up.url(f"/private{number}") for number in range(10)]
    lost = [down.url(f"/page{number}") for number in range(20)]
    many = {"CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 32}
    result = await crawl([*pages, *private, *lost], {**ONE_ATTEMPT, **many})
    assert (up.robots_fetches, down.robots_fetches) == (1, 1)
    assert result.responses == dict.fromkeys(pages, 200)
    assert all(disallowed(result, url) for url in private)
    assert all(isinstance(result.failure(url), RobotsUnreachable) for url in lost)
    assert result.stat("robotstxt/request_count") == 2
    assert result.stat("robotstxt/forbidden") == 10
    result.assert_clean()


async def test_robots_txt_itself_is_always_allowed(sites: Sites) -> None:
    """RFC 9309 section 2.2.2: "The /robots.txt URI is implicitly allowed." In that case, at the root."""
    some = [sites.add(robots=rules) for rules in ("User-agent: *\nDisallow: /\n", 503)]
    pages = [site.url(path) for site in some for path in ("/page", "/Robots.txt", "/a/robots.txt")]
    files = [site.url("/robots.txt") for site in some]
    result = await crawl([*files, *pages], {"RETRY_ENABLED": False})
    assert [site.pages_asked for site in some] == [[], []]
    assert not any(disallowed(result, url) for url in files)
    # The spider's own request, and ours for the pages.
    assert [site.robots_fetches for site in some] == [2, 2]
    result.assert_clean()


async def test_what_no_robots_txt_is_asked_for(sites: Sites) -> None:
    """Other schemes, and who needn't obey."""
    page, site = f"file://{__file__}", sites.add(robots=RULES)
    disobedient = Request(site.url("/private"), meta={"dont_obey_robotstxt": True})
    result = await crawl(["data:text/plain,hello", page, disobedient])
    assert result.responses == dict.fromkeys(["data:text/plain,hello", page, disobedient.url], 200)
    assert result.stat("robotstxt/request_count") == 0
    assert [hit.target for hit in site.requests] == ["/private"]
    result.assert_clean()
