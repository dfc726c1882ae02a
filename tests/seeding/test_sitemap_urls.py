"""REP.md section 9: what stands in `sitemap` lines. An absolute URL, as a rule."""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import redirect
from tests.helpers.crawling import crawl
from tests.helpers.log import warnings
from tests.helpers.recorded import Discovered
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import listing

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

RELATIVE = {
    "/map.xml": "/map.xml",
    "map.xml": "/map.xml",
    "sub/map.xml?x=1": "/sub/map.xml?x=1",
    "../map.xml": "/map.xml",
    "//{netloc}/map.xml": "/map.xml",
    "?map=1": "/robots.txt?map=1",
}


@pytest.mark.parametrize(("value", "path"), RELATIVE.items())
async def test_a_relative_url_is_resolved_with_a_warning(
    sites: Sites, value: str, path: str
) -> None:
    """Resolved against the URL of the robots.txt, with a warning."""
    site, discovered = sites.add(), Discovered()
    value = value.replace("{netloc}", site.url("").removeprefix("http://"))
    site.set("/robots.txt", listing(value))
    result = await crawl(
        site.url("/page"), {"REP_SITEMAPS": True}, signal_handlers=discovered.handlers
    )
    assert discovered.urls == [site.url(path)]
    [message] = warnings(result, without=" was not read: ")
    assert message.endswith(f"lists a sitemap with a relative URL: {value}")
    assert site.url("") in message
    result.assert_clean()


async def test_relative_after_a_redirect(sites: Sites) -> None:
    """Against the URL where the file is."""
    there, discovered = sites.add(pages={"/files/rules": listing("map.xml")}), Discovered()
    site = sites.add(robots=redirect(there.url("/files/rules")))
    result = await crawl(site.url("/page"), signal_handlers=discovered.handlers)
    assert discovered.urls == [there.url("/files/map.xml")]
    assert discovered.all[0]["origin"] == Origin.from_url(site.url())
    result.assert_clean()


NONSENSE = [
    "javascript:alert(1)",
    "mailto:webmaster@example.com",
    "data:text/xml,<urlset/>",
    "file:///etc/passwd",
    "ftp://127.0.0.1/map.xml",
    "http://",
    "http://[",
    "http://[::1",
    "http://:80/map.xml",
    "http://127.0.0.1:99999/map.xml",
    "http://127.0.0.1:port/map.xml",
    "https:",
    "about:blank",
    "javascript:" + "x" * 5000,
]


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: value[:40])
async def test_nonsense_is_a_warning(sites: Sites, value: str) -> None:
    """And what is right beside it is found all the same."""
    site, discovered = sites.add(), Discovered()
    good = site.url("/good.xml")
    site.set("/robots.txt", listing(value, good))
    result = await crawl(
        site.url("/page"), {"REP_SITEMAPS": True}, signal_handlers=discovered.handlers
    )
    assert discovered.urls == [good]
    assert sorted(site.pages_asked) == ["/good.xml", "/page"]
    [message] = warnings(result, without=" was not read: ")
    assert message.endswith(f"lists a sitemap with an invalid URL: {value[:200]}")
    assert result.stat("rep/sitemaps/found") == 1
    result.assert_clean()


@pytest.mark.parametrize("value", ["", "   ", "\t", "# a comment"], ids=repr)
async def test_empty_is_nothing(sites: Sites, value: str) -> None:
    """Not even worth a warning."""
    site, discovered = sites.add(), Discovered()
    site.set("/robots.txt", listing(value))
    result = await crawl(site.url("/page"), signal_handlers=discovered.handlers)
    assert discovered.all == []
    assert warnings(result, without=" was not read: ") == []
    result.assert_clean()


LENIENT = {
    # Sitemaps need not be percent-encoded.
    "/site map.xml": "/site%20map.xml",
    "/k\u00e4se.xml": "/k%C3%A4se.xml",
    '/"quoted".xml': "/%22quoted%22.xml",
}


@pytest.mark.parametrize(("value", "path"), LENIENT.items())
async def test_not_percent_encoded(sites: Sites, value: str, path: str) -> None:
    site = sites.add()
    site.set("/robots.txt", listing(site.url(value)))
    result = await crawl(site.url("/page"), {"REP_SITEMAPS": True})
    assert sorted(site.pages_asked) == sorted(["/page", path])
    assert warnings(result, without=" was not read: ") == []
    result.assert_clean()
