"""What people asked crawlers for beyond the protocol; REP.md sections 12 and 13. To add one, write a line:
project and number of the report; what the site answers for robots.txt; the settings that do what was asked
for; what becomes of a request for /private, without these settings and with them."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, Behaviour, answer
from tests.helpers.crawling import ONE_ATTEMPT, crawl
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset

FETCHED, REFUSED, UNREACHABLE = (
    "NoneType",
    RobotsDisallowed.__name__,
    RobotsUnreachable.__name__,
)
PAGE = "<!DOCTYPE html><html><p>One moment, please"
CLOUDFLARE, CHALLENGE = (
    ("cf-mitigated", "challenge"),
    ("x-amzn-waf-action", "challenge"),
)
CAPTCHA = ("x-amzn-waf-action", "captcha")
HELD = {"REP_CHALLENGE": "hold"}
SLOW = "user-agent: *\ncrawl-delay: 301\n"

ASKED_FOR: list[tuple[str, Behaviour | str, dict[str, Any], str, str]] = [
    # No rules are no permission if a bot wall answered. The second sends no page to a crawler.
    ("yoko-crawler 97", answer(PAGE, 403, [CLOUDFLARE]), HELD, FETCHED, UNREACHABLE),
    ("yoko-crawler 100", answer("", 202, [CHALLENGE]), HELD, FETCHED, UNREACHABLE),
    ("xagent 2043, walls", answer(PAGE, 405, [CAPTCHA]), HELD, FETCHED, UNREACHABLE),
    ("anubis 1865", answer(PAGE, 202), HELD, FETCHED, UNREACHABLE),
    # Sites that ask for long delays
    ("crawler-commons 194", SLOW, {"REP_CRAWL_DELAY": {"most": 300, "beyond": "skip"}}, FETCHED, REFUSED),
    # Rules of one's own, or an owner's permission, which ends
    ("crawl-anywhere 88", RULES, {"REP_OVERRIDES": {"HOST": None}}, REFUSED, FETCHED),
    ("yoko-crawler 79", RULES, {"REP_OVERRIDES": {"HOST": {"file": None, "until": "9999-01-01"}}}, REFUSED, FETCHED),
    ("yoko-crawler 79, over", RULES, {"REP_OVERRIDES": {"HOST": {"file": None, "until": "2026-01-01"}}}, REFUSED, REFUSED),
]  # fmt: skip


async def test_what_settings_make_of_answers(sites: Sites) -> None:
    became = {}
    for reported, robots, settings, *_ in ASKED_FOR:
        site = sites.add(robots)
        if "REP_OVERRIDES" in settings:
            settings = {"REP_OVERRIDES": {site.host: settings["REP_OVERRIDES"]["HOST"]}}
        outcomes = []
        for chosen in ({}, settings):
            result = await crawl([site.url("/private")], {**ONE_ATTEMPT, **chosen})
            outcomes.append(type(result.failure(site.url("/private"))).__name__)
        became[reported] = tuple(outcomes)
    assert became == {
        reported: (plain, with_it) for reported, *_, plain, with_it in ASKED_FOR
    }


class Unwraps:
    """A project's middleware for sitemaps that a browser shows as HTML."""

    def process_response(self, request: Request, response: Response) -> Response:
        _, viewer, wrapped = response.body.partition(
            b'<div id="webkit-xml-viewer-source-xml">'
        )
        body = wrapped.rpartition(b"</div>")[0]
        return response.replace(body=body) if viewer else response


@pytest.mark.scrapy_api
async def test_sitemaps_that_a_browser_wraps_in_html(sites: Sites) -> None:
    """scrapy-playwright 334, firecrawl 2600."""
    site = sites.add()
    site.set("/robots.txt", f"Sitemap: {site.url('/s.xml')}\n")
    listed = urlset([site.url("/a"), site.url("/b")]).partition("?>")[2]
    viewer = f'<html><body><div id="webkit-xml-viewer-source-xml">{listed}</div></body></html>'
    site.set("/s.xml", answer(viewer, type="text/html"))
    for middlewares, pages in (({}, 0), ({Unwraps: 950}, 2)):
        settings = {"REP_SITEMAPS": True, "DOWNLOADER_MIDDLEWARES": middlewares}
        result = await crawl([site.url("/x")], settings)
        assert result.stat("rep/sitemaps/emitted") == pages
        assert ("it is an HTML page, not a sitemap" in result.log) is not pages
