"""REP.md section 2: the request for a robots.txt is plain, whatever the project adds to all requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.fetcher import is_elsewhere
from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import RULES, answer, head, in_turn, raw, redirect
from tests.helpers.crawling import DAY, NO, OK, ListSpider, crawl
from tests.helpers.robots_command import robots_crawls
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.origins.conftest import Runs

VALIDATORS = {
    "If-Modified-Since": "Wed, 21 Oct 2015 07:28:00 GMT",
    "If-None-Match": '"abc"',
    "If-Range": '"abc"',
    "Range": "bytes=0-99",
}
SECRETS = {
    "Authorization": "Bearer secret",
    "X-Api-Key": "secret",
    "X-Auth-Token": "secret",
    "X-CSRF-Token": "secret",
    "X-Session-Id": "secret",
}
COOKIE = {"Cookie": "session=secret"}
HARMLESS = {"Accept-Language": "fr", "X-Team": "search"}


class Sets:
    """A middleware that adds what a page needs."""

    def process_request(self, request: Request) -> None:
        request.headers["Cookie"] = COOKIE["Cookie"]
        request.headers["If-None-Match"] = VALIDATORS["If-None-Match"]


class WithLogin(ListSpider):
    http_user, http_pass, http_auth_domain = "user", "secret", None


def sent(site: Site, path: str, names: Any) -> dict[str, str]:
    [hit] = site.hits(path)
    return {name: value for name in names if (value := hit.header(name)) is not None}


@pytest.mark.parametrize("by", ["settings", "middleware"])
@pytest.mark.download
@pytest.mark.scrapy_api
async def test_no_cookie_and_nothing_about_a_copy(sites: Sites, by: str) -> None:
    site = sites.add(redirect("/rules.txt"), {"/rules.txt": RULES})
    headers = {**COOKIE, **VALIDATORS, **SECRETS, **HARMLESS}
    settings: dict[str, Any] = {"DEFAULT_REQUEST_HEADERS": headers}
    if by == "middleware":
        settings = {"DOWNLOADER_MIDDLEWARES": {Sets: 1}}
    result = await crawl([site.url("/private"), site.url("/x")], settings)
    for path in ("/robots.txt", "/rules.txt"):
        assert sent(site, path, {**COOKIE, **VALIDATORS}) == {}
        if by == "settings":  # its own site gets what else pages get
            assert sent(site, path, {**SECRETS, **HARMLESS}) == {**SECRETS, **HARMLESS}
    assert result.disallowed(site.url("/private"))
    assert result.status(site.url("/x")) == 200


async def test_secrets_stay_with_the_site_that_was_asked(sites: Sites) -> None:
    other = sites.add(pages={"/rules.txt": RULES})
    site = sites.add(redirect(other.url("/rules.txt")))
    settings = {"DEFAULT_REQUEST_HEADERS": {**SECRETS, **HARMLESS}}
    for spider in (ListSpider, WithLogin):
        result = await crawl(spider, settings, requests=[site.url("/private")])
        assert result.disallowed(site.url("/private"))
        assert sent(site, "/robots.txt", ["Authorization"]) != {}
        assert sent(other, "/rules.txt", {**SECRETS, **HARMLESS}) == HARMLESS
        for one in (site, other):
            one.requests.clear()


def test_which_redirects_lead_elsewhere() -> None:
    table = {
        ("http://a.example", "http://a.example"): False,
        ("http://a.example", "https://a.example"): False,
        ("http://a.example:8080", "https://a.example:8443"): False,
        ("https://a.example", "http://a.example"): True,
        ("http://a.example", "http://a.example:8080"): True,
        ("http://a.example", "http://www.a.example"): True,
    }
    with every_row() as row:
        for (asked, target), expected in table.items():
            with row(target):
                assert (
                    is_elsewhere(Origin.from_url(target), Origin.from_url(asked))
                    == expected
                )


async def test_a_304_for_which_nobody_asked(sites: Sites, runs: Runs) -> None:
    """A copy is still good, as of now. Without one, nothing is known, nor with a missing file."""
    unchanged = raw(head(304, [("Cache-Control", "max-age=7200")]))
    site = sites.add(in_turn(RULES, unchanged, 404))
    assert await runs.both(site) == ([NO, OK], 1)
    assert await runs.both(site, 2 * DAY) == ([NO, OK], 2)
    kept = runs.kept(site)
    assert (kept.outcome.value, kept.status, kept.attempts) == ("rules", 200, 0)
    assert kept.fetched_at == runs.clock.now
    assert kept.fresh_until == runs.clock.now + 7200
    # Fresh, then due again.
    assert await runs.both(site, 7000) == ([NO, OK], 2)
    assert await runs.both(site, 300) == ([OK, OK], 3)
    site.set("/robots.txt", unchanged)
    settings = {"REP_UNREACHABLE": "drop"}
    never = sites.add(unchanged)
    outcomes = await runs.next(never.url("/x"), 2 * DAY, site.url("/x"), **settings)
    assert outcomes == [RobotsUnreachable.__name__] * 2


async def test_a_304_ends_an_outage(sites: Sites, runs: Runs) -> None:
    site = sites.add(in_turn(RULES, answer("down", 503), raw(head(304))))
    await runs.both(site)
    assert await runs.both(site, 2 * DAY) == ([NO, OK], 2)
    assert runs.kept(site).attempts == 1
    assert await runs.both(site, 1000) == ([NO, OK], 3)
    assert (runs.kept(site).attempts, runs.kept(site).unreachable_since) == (0, None)


async def test_other_files_are_asked_for_in_the_same_way(
    sites: Sites, tmp_path: Path
) -> None:
    """tdmrep.json, and pages that `scrapy robots` looks at."""
    tdmrep = "/.well-known/tdmrep.json"
    other = sites.add("", {"/moved": "page"})
    site = sites.add("", {tdmrep: "[]", "/page": redirect(other.url("/moved"))})
    headers = {**COOKIE, **VALIDATORS, **SECRETS}
    settings = {"DEFAULT_REQUEST_HEADERS": headers}
    await crawl([site.url("/x")], {**settings, "REP_TDMREP": True})
    assert sent(site, tdmrep, headers) == SECRETS
    text = {"DEFAULT_REQUEST_HEADERS": json.dumps(headers)}
    done = await robots_crawls(tmp_path, "--page", site.url("/page"), settings=text)
    assert done.status == 0
    assert sent(site, "/page", headers) == SECRETS
    assert sent(other, "/moved", headers) == {}
