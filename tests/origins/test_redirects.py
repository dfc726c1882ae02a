"""REP.md section 2, "Redirects": up to 5 hops to any host; the rules stay with who was asked."""

from __future__ import annotations

import pytest

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import RULES, answer, redirect
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.recorded import Resolved
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites


def disallowed(result: CrawlResult, site: Site, path: str = "/private") -> bool:
    return isinstance(result.failure(site.url(path)), RobotsDisallowed)


def chain(sites: Sites, hops: int, *, hosts: bool) -> list[Site]:
    """Sites whose first answers with that many redirects, over as many hosts if wished."""
    many = [sites.add() for _ in range(hops + 1)] if hosts else [sites.add()] * (hops + 1)
    for number in range(hops):
        path = "/robots.txt" if number == 0 else f"/hop{number}"
        many[number].set(path, redirect(many[number + 1].url(f"/hop{number + 1}")))
    many[hops].set(f"/hop{hops}", RULES)
    return many


@pytest.mark.download
@pytest.mark.scrapy_api
async def test_five_hops_are_followed_and_the_sixth_is_not(sites: Sites) -> None:
    chains = [
        (hops, chain(sites, hops, hosts=hosts)) for hops in (1, 5, 6) for hosts in (False, True)
    ]
    resolved = Resolved()
    result = await crawl(
        [many[0].url("/private") for _, many in chains], signal_handlers=resolved.handlers
    )
    with every_row() as row:
        for hops, many in chains:
            with row((hops, many[0] is not many[1])):
                [one] = resolved.of(many[0].url())
                if hops <= 5:
                    assert disallowed(result, many[0])
                    assert (one["outcome"], one["hops"]) == (Outcome.RULES, hops)
                    assert one["url"] == many[-1].url(f"/hop{hops}")
                else:
                    assert result.status(many[0].url("/private")) == 200
                    assert one["outcome"] is Outcome.MISSING
                    assert many[6].count("/hop6") == 0
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
    assert delivering.count("/robots.txt") == 1  # not asked for by the hop
    result.assert_clean()


async def test_robots_txt_of_two_origins_that_is_one_file(sites: Sites) -> None:
    """The usual case: http:// redirects to https://. Each origin asks, each has its entry."""
    secure = sites.add(robots=RULES, tls=True)
    plain = sites.add(robots=redirect(secure.url("/robots.txt")), host=secure.host)
    result = await crawl([plain.url("/private"), secure.url("/private")])
    assert disallowed(result, plain)
    assert disallowed(result, secure)
    assert (plain.count("/robots.txt"), secure.count("/robots.txt")) == (1, 2)
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
    "mailto": "mailto:webmaster@example.com",
    "s3": "s3://bucket/robots.txt",
    "unbalanced bracket": "http://[",
    "no host": "http://",
    "no host but a path": "http:///robots.txt",
    "bad port": "http://127.0.0.1:99999/robots.txt",
    "bad port text": "http://127.0.0.1:http/robots.txt",
    "bad IPv6": "http://[::xyz]/robots.txt",
    "a missing page": "/missing",
}


def html(head: str) -> str:
    return f"<html><head>{head}</head></html>"


HTML = {
    "meta refresh": html('<meta http-equiv="refresh" content="0; url=/rules">'),
    "JavaScript": html('<script>location.href = "/rules"</script>'),
    "frame": html('<frameset><frame src="/rules"></frameset>'),
}


async def test_what_leads_nowhere_counts_as_missing(sites: Sites) -> None:
    """As do loops; and redirects in HTML are none."""
    pages = {"/rules": RULES, "/missing": 404}
    table = {
        **{name: sites.add(robots=redirect(to), pages=pages) for name, to in LEADS_NOWHERE.items()},
        **{
            name: sites.add(robots=answer(page, type="text/html"), pages=pages)
            for name, page in HTML.items()
        },
    }
    one, other = table["a longer loop"], _ = sites.add(), sites.add()
    one.set("/robots.txt", redirect(other.url("/robots.txt")))
    other.set("/robots.txt", redirect(one.url("/robots.txt")))
    resolved = Resolved()
    result = await crawl(
        [site.url("/private") for site in table.values()], signal_handlers=resolved.handlers
    )
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


@pytest.mark.download
async def test_usable_location_is_followed(sites: Sites) -> None:
    """Whatever the status. Whether a client resolves dots, or the server does, is not tested here."""
    pages = dict.fromkeys(("/rules", "/a/../rules", "/r%C3%A8gles"), RULES)
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
                assert disallowed(result, site)
                assert not any(hit.header("Authorization") for hit in site.requests)
                assert [hit.method for hit in site.requests] == ["GET", "GET"]
    result.assert_clean()


@pytest.mark.needs_reactor(reason="Scrapy on aiohttp fails on headers that are not UTF-8")
async def test_a_location_in_latin_1(sites: Sites) -> None:
    site = sites.add(robots=redirect("/r\u00e8gles"), pages={"/r%E8gles": RULES})
    result = await crawl(site.url("/private"))
    assert disallowed(result, site)
    result.assert_clean()


async def test_unreachable_behind_a_redirect(sites: Sites) -> None:
    targets = [sites.add(pages={"/page": status}).url("/page") for status in (429, 503)]
    table = [sites.add(robots=redirect(to)) for to in (*targets, f"{sites.refused()}/robots.txt")]
    result = await crawl([site.url("/private") for site in table])
    for site in table:
        error = result.failure(site.url("/private"))
        assert isinstance(error, RobotsUnreachable)
        assert str(error.origin) == site.url("")
    result.assert_clean()
