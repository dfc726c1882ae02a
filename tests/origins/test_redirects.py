"""REP.md section 2, "Redirects": up to 5 hops to any host; the rules stay with who was asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import RULES, answer, redirect
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites

pytestmark = [pytest.mark.download, pytest.mark.scrapy_api]


def disallowed(result: CrawlResult, site: Site, path: str = "/private") -> bool:
    return isinstance(result.failure(site.url(path)), RobotsDisallowed)


def privates(table: Mapping[Any, Site]) -> list[str]:
    return [site.url("/private") for site in table.values()]


BOTH = {False: "one host", True: "many hosts"}


def chain(sites: Sites, hops: int, *, hosts: bool) -> list[Site]:
    """Sites whose first answers with that many redirects, over as many hosts if wished."""
    many = [sites.add() for _ in range(hops + 1)] if hosts else [sites.add()] * (hops + 1)
    for number in range(hops):
        path = "/robots.txt" if number == 0 else f"/hop{number}"
        many[number].set(path, redirect(many[number + 1].url(f"/hop{number + 1}")))
    many[hops].set(f"/hop{hops}", RULES)
    return many


async def test_up_to_five_hops_are_followed(sites: Sites) -> None:
    chains = [
        (hops, hosts, chain(sites, hops, hosts=hosts)) for hops in (1, 2, 5) for hosts in BOTH
    ]
    resolved = Resolved()
    result = await crawl(
        [many[0].url(path) for _, _, many in chains for path in ("/private", "/public")],
        signal_handlers=resolved.handlers,
    )
    with every_row() as row:
        for hops, hosts, (first, *others) in chains:
            with row(f"{hops} hops, {BOTH[hosts]}"):
                assert disallowed(result, first)
                assert result.status(first.url("/public")) == 200
                [one] = resolved.of(first.url())
                assert (one["outcome"], one["hops"]) == (Outcome.RULES, hops)
                assert one["url"] == others[-1].url(f"/hop{hops}")
    assert len(resolved.all) == len(chains)
    result.assert_clean()


async def test_the_sixth_hop_is_not_followed(sites: Sites) -> None:
    chains = {name: chain(sites, 6, hosts=hosts) for hosts, name in BOTH.items()}
    resolved = Resolved()
    result = await crawl(
        [many[0].url("/private") for many in chains.values()], signal_handlers=resolved.handlers
    )
    with every_row() as row:
        for name, many in chains.items():
            with row(name):
                assert result.status(many[0].url("/private")) == 200
                assert many[5].count("/hop5") == 1
                assert many[6].count("/hop6") == 0
                found = [one["outcome"] for one in resolved.of(many[0].url())]
                assert found == [Outcome.MISSING]
    assert len(resolved.all) == len(chains)
    result.assert_clean()


async def test_every_kind_of_redirect_is_followed(sites: Sites) -> None:
    table = {
        status: sites.add(robots=redirect("/rules", status), pages={"/rules": RULES})
        for status in (301, 302, 303, 307, 308)
    }
    result = await crawl(privates(table))
    with every_row() as row:
        for status, site in table.items():
            with row(status):
                assert disallowed(result, site)
                assert [hit.method for hit in site.requests] == ["GET", "GET"]
    result.assert_clean()


async def test_rules_belong_to_the_origin_first_asked(sites: Sites) -> None:
    """They do not apply to the host that delivered them, and that one's do not apply here."""
    delivering = sites.add(
        robots="User-agent: *\nDisallow: /public\nDisallow: /shared",
        pages={"/shared/rules": RULES},
    )
    asked = sites.add(robots=redirect(delivering.url("/shared/rules")))
    result = await crawl(
        [site.url(path) for site in (asked, delivering) for path in ("/private", "/public")]
    )
    assert disallowed(result, asked)
    assert result.status(asked.url("/public")) == 200
    assert result.status(delivering.url("/private")) == 200
    assert disallowed(result, delivering, "/public")
    assert delivering.count("/robots.txt") == 1
    result.assert_clean()


async def test_the_hop_does_not_ask_for_the_rules_of_its_target(sites: Sites) -> None:
    delivering = sites.add(robots="User-agent: *\nDisallow: /", pages={"/rules": RULES})
    asked = sites.add(robots=redirect(delivering.url("/rules")))
    result = await crawl(asked.url("/private"))
    assert disallowed(result, asked)
    assert delivering.count("/robots.txt") == 0
    result.assert_clean()


async def test_robots_txt_of_two_origins_that_is_one_file(sites: Sites) -> None:
    """The usual case: http:// redirects to https://. Each origin asks, each has its entry."""
    secure = sites.add(robots=RULES, tls=True)
    plain = sites.add(robots=redirect(secure.url("/robots.txt")), host=secure.host)
    result = await crawl([plain.url("/private"), secure.url("/private")])
    assert disallowed(result, plain)
    assert disallowed(result, secure)
    assert plain.count("/robots.txt") == 1
    assert secure.count("/robots.txt") == 2
    result.assert_clean()


async def test_a_loop_counts_as_missing(sites: Sites) -> None:
    """However it is noticed."""
    rings = [[sites.add() for _ in range(length)] for length in (1, 2, 3)]
    for ring in rings:
        for site, following in zip(ring, [*ring[1:], ring[0]], strict=True):
            site.set("/robots.txt", redirect(following.url("/robots.txt")))
    result = await crawl([ring[0].url("/private") for ring in rings])
    with every_row() as row:
        for ring in rings:
            with row(f"of {len(ring)}"):
                assert result.status(ring[0].url("/private")) == 200
                assert sum(site.count("/robots.txt") for site in ring) <= 6
    result.assert_clean()


UNUSABLE = {
    "none": None,
    "empty": "",
    "blank": "   ",
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1/robots.txt",
    "data": "data:text/plain,User-agent:%20*%0ADisallow:%20/",
    "javascript": "javascript:alert(1)",
    "mailto": "mailto:webmaster@example.com",
    "s3": "s3://bucket/robots.txt",
    "unbalanced bracket": "http://[",
    "no host": "http://",
    "no host but a path": "http:///robots.txt",
    "bad port": "http://127.0.0.1:99999/robots.txt",
    "bad port text": "http://127.0.0.1:http/robots.txt",
    "bad IPv6": "http://[::xyz]/robots.txt",
}


async def test_unusable_location_counts_as_missing(sites: Sites) -> None:
    table = {name: sites.add(robots=redirect(to)) for name, to in UNUSABLE.items()}
    resolved = Resolved()
    result = await crawl(privates(table), signal_handlers=resolved.handlers)
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert result.status(site.url("/private")) == 200
                assert [one["outcome"] for one in resolved.of(site.url())] == [Outcome.MISSING]
    assert len(resolved.all) == len(table)
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
}


async def test_usable_location_is_followed(sites: Sites) -> None:
    table = {name: sites.add(pages={"/rules": RULES}) for name in USABLE}
    for name, site in table.items():
        location = USABLE[name].format(host=f"{site.host}:{site.port}")
        site.set("/robots.txt", redirect(location))
        # Whether a client resolves dots, or the server does, is not what is tested here.
        site.set("/a/../rules", RULES)
    result = await crawl(privates(table))
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert disallowed(result, site)
                assert not any(hit.header("Authorization") for hit in site.requests)
    result.assert_clean()


LATIN_1 = pytest.param(
    "/r\u00e8gles",
    "/r%E8gles",
    id="Latin-1",
    marks=pytest.mark.needs_reactor(reason="Scrapy on aiohttp fails on headers that are not UTF-8"),
)
UTF_8 = pytest.param("/r\u00c3\u00a8gles", "/r%C3%A8gles", id="UTF-8")


@pytest.mark.parametrize(("location", "target"), [LATIN_1, UTF_8])
async def test_location_with_raw_bytes(sites: Sites, location: str, target: str) -> None:
    """They go on as they came (the tests write headers as Latin-1, byte by character)."""
    site = sites.add(robots=redirect(location), pages={target: RULES})
    result = await crawl(site.url("/private"))
    assert disallowed(result, site)
    result.assert_clean()


def redirected_to(sites: Sites, statuses: Iterable[int]) -> dict[int, Site]:
    """Sites whose robots.txt redirects to another one's page with that status."""
    pages = {status: sites.add(pages={"/page": status}).url("/page") for status in statuses}
    return {status: sites.add(robots=redirect(page)) for status, page in pages.items()}


async def test_missing_behind_a_redirect(sites: Sites) -> None:
    table = redirected_to(sites, [404, 410])
    result = await crawl(privates(table))
    with every_row() as row:
        for status, site in table.items():
            with row(status):
                assert result.status(site.url("/private")) == 200
    result.assert_clean()


async def test_unreachable_behind_a_redirect(sites: Sites) -> None:
    table: dict[Any, Site] = {
        **redirected_to(sites, [429, 503]),
        "refused": sites.add(robots=redirect(f"{sites.refused()}/robots.txt")),
    }
    result = await crawl(privates(table))
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                error = result.failure(site.url("/private"))
                assert isinstance(error, RobotsUnreachable)
                assert str(error.origin).rstrip("/") == site.url("")
    result.assert_clean()


HTML = {
    "meta refresh": '<meta http-equiv="refresh" content="0; url=/rules">',
    "JavaScript": '<script>location.href = "/rules"</script>',
    "frame": '<frameset><frame src="/rules"></frameset>',
}


async def test_html_redirects_are_not_followed(sites: Sites) -> None:
    table = {
        name: sites.add(
            robots=answer(f"<html><head>{html}</head></html>", type="text/html"),
            pages={"/rules": RULES},
        )
        for name, html in HTML.items()
    }
    result = await crawl(privates(table))
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                assert result.status(site.url("/private")) == 200
                assert site.count("/rules") == 0
    result.assert_clean()
