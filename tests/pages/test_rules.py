"""``scrapy_rep.page_rules()``: what a response says, for whom, and read once."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse, XmlResponse

from scrapy_rep import page_rules
from scrapy_rep.protocol.page import PageRules
from tests.helpers.behaviours import page
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.servers import Sites
from tests.protocol.pages import told

NOINDEX = '<meta name="robots" content="noindex">'
URL = "http://example.com/"


@pytest.mark.parametrize(
    ("response", "meaning"),
    [
        (HtmlResponse(URL, body=NOINDEX.encode()), "noindex"),
        (HtmlResponse(URL, body=NOINDEX, encoding="utf-16"), "noindex"),
        (HtmlResponse(URL, body=NOINDEX.encode("utf-16-be"), headers={"Content-Type": "text/html; charset=utf-16be"}), "noindex"),
        (HtmlResponse(URL, headers={"X-Robots-Tag": ["nofollow", "foobot: noindex"]}), "nofollow"),
        (HtmlResponse(URL, body=NOINDEX.encode(), headers={"X-Robots-Tag": "nofollow"}), "noindex nofollow"),
        (Response(URL, headers={"X-Robots-Tag": "nofollow"}), "nofollow"),
        (Response(URL, body=NOINDEX.encode()), ""),
        (Response(URL, body=NOINDEX.encode(), headers={"Content-Type": "text/html"}), "noindex"),
        (TextResponse(URL, body=NOINDEX.encode()), ""),
        (XmlResponse(URL, body=NOINDEX.encode()), ""),
        (XmlResponse(URL, body=NOINDEX.encode(), headers={"Content-Type": "application/xhtml+xml"}), "noindex"),
        (HtmlResponse(URL), ""),
    ],
)  # fmt: skip
def test_any_response_can_be_asked(response: Response, meaning: str) -> None:
    assert told(page_rules(response)) == meaning


def test_without_a_crawl_the_request_tells_the_agent() -> None:
    headers = {"User-Agent": "Mozilla/5.0 (compatible; FooBot/1.0)"}
    requests = {
        None: "",
        Request(URL): "",
        Request(URL, headers=headers): "noindex",
        Request(URL, meta={"rep_user_agent": ["bar", "foobot"]}): "noindex",
        Request(URL, meta={"rep_user_agent": "no token"}): "",
    }
    for request, meaning in requests.items():
        response = Response(
            URL, headers={"X-Robots-Tag": "foobot: noindex"}, request=request
        )
        agents: list[Any] = [None, "FooBot", ["x", "foobot"], ()]
        found = [told(page_rules(response, one)) for one in agents]
        assert found == [meaning, "noindex", "noindex", ""]


def test_a_response_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    read = PageRules.from_html

    def counting(*arguments: Any) -> PageRules:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(PageRules, "from_html", counting)
    response = HtmlResponse(URL, body=NOINDEX.encode())
    assert page_rules(response) is page_rules(response, ())
    assert page_rules(response, "foobot").noindex
    assert len(reads) == 2
    assert page_rules(response.replace(body=b"")) == PageRules()
    assert response.request is None


class PageRulesSpider(ListSpider):
    def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        yield {"response": response, "rules": told(page_rules(response))}


class RulesInPipeline:
    def process_item(self, item: Any) -> Any:
        item["in_pipeline"] = told(page_rules(item["response"]))
        return item


@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ({}, "nofollow"),
        ({"REP_USER_AGENT": ["foobot", "testbot"]}, "noindex nofollow"),
        ({"ROBOTSTXT_USER_AGENT": "foobot"}, "noindex"),
        ({"DEFAULT_REQUEST_HEADERS": {"User-Agent": "FooBot/1.0"}}, "noindex"),
        ({"USER_AGENT": "Mozilla/5.0 Firefox/1.0"}, ""),
    ],
)
async def test_a_crawl_goes_by_its_own_agent(
    sites: Sites, settings: dict[str, Any], meaning: str
) -> None:
    site = sites.add(pages={"/": page("x", "foobot: noindex", "testbot: nofollow")})
    named = Request(site.url("/"), meta={"rep_user_agent": "foobot"})
    settings = {
        **settings,
        "ITEM_PIPELINES": {RulesInPipeline: 1},
        "CONCURRENT_REQUESTS": 1,
    }
    result = await crawl(PageRulesSpider, settings, requests=[site.url("/"), named])
    found = [(item["rules"], item["in_pipeline"]) for item in result.spider.items]
    assert sorted(found) == sorted([(meaning, meaning), ("noindex", "noindex")])
    result.assert_clean()


async def test_each_of_two_crawls_goes_by_its_own(sites: Sites) -> None:
    class Outer(PageRulesSpider):
        robotstxt_user_agent = "foobot"

        async def parse(self, response: Response, **kwargs: Any) -> Any:  # type: ignore[override]
            inner = await crawl(PageRulesSpider, requests=[response.url])
            yield {
                "rules": told(page_rules(response)),
                "inner": inner.spider.items[0]["rules"],
            }

    site = sites.add(pages={"/": page("x", "foobot: noindex", "testbot: nofollow")})
    result = await crawl(Outer, requests=[site.url("/")])
    assert result.spider.items == [{"rules": "noindex", "inner": "nofollow"}]
