"""REP.md sections 1 and 2: whose robots.txt a URL asks for, and how often."""

from __future__ import annotations

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, crawl
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.download, pytest.mark.scrapy_api]

NO_RULES = "User-agent: *\nDisallow:\n"


def disallowed(result: CrawlResult, url: str) -> bool:
    return isinstance(result.failure(url), RobotsDisallowed)


async def test_ports_have_their_own_rules(sites: Sites) -> None:
    one = sites.add(robots=RULES)
    other = sites.add(robots=NO_RULES, host=one.host)
    result = await crawl([one.url("/private"), other.url("/private")])
    assert disallowed(result, one.url("/private"))
    assert result.status(other.url("/private")) == 200
    assert one.count("/robots.txt") == other.count("/robots.txt") == 1
    result.assert_clean()


async def test_schemes_have_their_own_rules(sites: Sites) -> None:
    plain = sites.add(robots=NO_RULES)
    secure = sites.add(robots=RULES, host=plain.host, tls=True)
    result = await crawl([plain.url("/private"), secure.url("/private")])
    assert result.status(plain.url("/private")) == 200
    assert disallowed(result, secure.url("/private"))
    result.assert_clean()


async def test_a_name_and_its_address_have_their_own_rules(sites: Sites) -> None:
    """As have two names of one address, and a sub domain and its parent."""
    site = sites.add(robots=RULES, name="shop.test")
    roots = [site.url("").replace("shop.test", name) for name in ("shop.test", site.host)]
    sub = sites.add(robots=NO_RULES, name="www.shop.test")
    result = await crawl([f"{root}/private" for root in roots] + [sub.url("/private")])
    assert all(disallowed(result, f"{root}/private") for root in roots)
    assert result.status(sub.url("/private")) == 200
    assert site.count("/robots.txt") == 2
    assert sub.count("/robots.txt") == 1
    result.assert_clean()


async def test_upper_case_host_is_the_same_origin(sites: Sites) -> None:
    site = sites.add(robots=RULES, name="case.test")
    urls = [f"{site.url('')}/private", f"http://CASE.Test:{site.port}/private"]
    result = await crawl(urls)
    assert all(disallowed(result, url) for url in urls)
    assert site.count("/robots.txt") == 1
    result.assert_clean()


async def test_punycode_is_the_same_origin(sites: Sites) -> None:
    site = sites.add(robots=RULES, name="xn--exmple-cua.test")
    urls = [site.url("/private"), f"http://ex\u00e4mple.test:{site.port}/private"]
    result = await crawl(urls)
    assert all(disallowed(result, url) for url in urls)
    assert site.count("/robots.txt") == 1
    result.assert_clean()


async def test_default_port_is_the_same_origin(sites: Sites) -> None:
    try:
        site = sites.add(robots=RULES, port=80)
    except OSError as error:
        pytest.skip(f"port 80 cannot be had here: {error}")
    urls = [f"http://{site.host}/private", f"http://{site.host}:80/private"]
    result = await crawl(urls)
    assert all(disallowed(result, url) for url in urls)
    assert site.count("/robots.txt") == 1
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
    result.assert_clean()


async def test_user_info_is_no_part_of_the_origin(sites: Sites) -> None:
    """One fetch for all of them, and without any of them."""
    site = sites.add(robots=RULES)
    users = [None, "alice", "bob:secret", "carol:%40%3A"]
    result = await crawl([site.url("/private", user=user) for user in users])
    assert all(disallowed(result, site.url("/private", user=user)) for user in users)
    [hit] = site.requests
    assert hit.target == "/robots.txt"
    assert hit.header("Authorization") is None
    assert hit.header("Host") == f"{site.host}:{site.port}"
    result.assert_clean()


async def test_many_requests_at_once_fetch_robots_txt_once(sites: Sites) -> None:
    """However many requests wait for it at that moment."""
    site = sites.add(robots=after(0.3, RULES))
    urls = [site.url(f"/page{number}") for number in range(10)]
    urls += [site.url(f"/private{number}") for number in range(10)]
    result = await crawl(urls, {"CONCURRENT_REQUESTS": 32, "CONCURRENT_REQUESTS_PER_DOMAIN": 32})
    assert site.count("/robots.txt") == 1
    assert site.requests[0].target == "/robots.txt"
    assert len(result.responses) == 10
    assert all(disallowed(result, url) for url in urls[10:])
    assert result.stat("robotstxt/request_count") == 1
    assert result.stat("robotstxt/forbidden") == 10
    result.assert_clean()


async def test_single_flight_of_a_failure(sites: Sites) -> None:
    """One failure is everybody's: 20 requests are not 20 attempts, before or after it."""
    site = sites.add(robots=after(0.3, 503))
    urls = [site.url(f"/page{number}") for number in range(20)]
    result = await crawl(urls, {**ONE_ATTEMPT, "CONCURRENT_REQUESTS": 8})
    assert site.count("/robots.txt") == 1
    assert len(result.failures) == 20
    result.assert_clean()


@pytest.mark.parametrize("rules", ["User-agent: *\nDisallow: /\n", 503], ids=["all", "unreachable"])
async def test_robots_txt_itself_is_always_allowed(sites: Sites, rules: str | int) -> None:
    """RFC 9309 section 2.2.2: "The /robots.txt URI is implicitly allowed." """
    site = sites.add(robots=rules)
    urls = [site.url("/robots.txt"), site.url("/page")]
    result = await crawl(urls, {"RETRY_ENABLED": False})
    assert result.failure(site.url("/page")) is not None
    assert site.count("/page") == 0
    assert not isinstance(result.failure(site.url("/robots.txt")), RobotsDisallowed)
    # The spider's own request, and ours for /page.
    assert site.count("/robots.txt") == 2
    result.assert_clean()


async def test_robots_txt_elsewhere_is_an_ordinary_url(sites: Sites) -> None:
    site = sites.add(robots="User-agent: *\nDisallow: /folder\nDisallow: /Robots.txt\n")
    urls = [site.url("/folder/robots.txt"), site.url("/Robots.txt")]
    result = await crawl(urls)
    assert all(disallowed(result, url) for url in urls)
    result.assert_clean()


async def test_other_schemes_pass() -> None:
    page = f"file://{__file__}"
    result = await crawl(["data:text/plain,hello", page])
    assert result.responses == {"data:text/plain,hello": 200, page: 200}
    assert result.stat("robotstxt/request_count") == 0
    result.assert_clean()


async def test_dont_obey_robotstxt_asks_nothing(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(Request(site.url("/private"), meta={"dont_obey_robotstxt": True}))
    assert result.status(site.url("/private")) == 200
    assert [hit.target for hit in site.requests] == ["/private"]
    result.assert_clean()
