"""Guards: whatever resolves names in a crawl asks `scrapy_rep.origins.targets`. When a test here fails
with a new Scrapy or a new library, a site may be able to lead crawlers inside (SECURITY.md)."""

from __future__ import annotations

import pytest
from scrapy.exceptions import CannotResolveHostError
from scrapy.utils.reactor import is_reactor_installed

from scrapy_rep.origins.targets import Targets, look_up
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.handlers import NEEDS, handler_settings
from tests.helpers.names import resolvers
from tests.helpers.servers import Sites


class Watcher(Targets):
    def __init__(self, lets: bool) -> None:
        self.lets = lets
        self.asked: set[tuple[str, str]] = set()

    def check_address(self, host: str, address: str) -> bool:
        self.asked.add((host, address))
        return self.lets


@pytest.mark.parametrize("handler", NEEDS)
@pytest.mark.download
@pytest.mark.scrapy_api
async def test_download_handlers_ask_before_they_connect(
    sites: Sites, handler: str | None
) -> None:
    settings = handler_settings(handler)
    site = sites.add(robots=RULES, name="shop.test")
    before = resolvers()
    lenient, strict, another = (
        Watcher(lets=True),
        Watcher(lets=False),
        Watcher(lets=False),
    )
    lenient.watch()
    pages = [site.url("/page"), site.url("/private")]
    result = await crawl(pages, {**settings, "REP_PRIVATE_HOSTS": True})
    assert result.status(site.url("/page")) == 200
    assert result.disallowed(site.url("/private"))
    strict.watch()
    another.watch()
    site.requests.clear()
    result = await crawl([site.url("/page")], {**settings, "ROBOTSTXT_OBEY": False})
    assert isinstance(result.failure(site.url("/page")), CannotResolveHostError)
    assert site.requests == []
    assert lenient.asked == strict.asked == another.asked == {("shop.test", site.host)}
    for one in (lenient, strict, another):
        one.unwatch()
    assert resolvers() == before


@pytest.mark.loop
async def test_look_ups_ask_as_well(sites: Sites) -> None:
    site = sites.add(name="shop.test")
    watcher = Watcher(lets=True)
    watcher.watch()
    assert await look_up("SHOP.test") == await look_up("shop.test") == [site.host]
    assert watcher.asked == {("shop.test", site.host)}
    assert await look_up("unknown.test") == []
    assert await look_up("a" * 70 + ".test") == []
    watcher.lets = False
    assert await look_up("shop.test") == []
    watcher.unwatch()
    assert await look_up("shop.test") == [site.host]


@pytest.mark.loop
async def test_only_names_are_asked_about(sites: Sites) -> None:
    """The address of a host that is an address itself can't change. A name that only begins like
    one is asked about."""
    site = sites.add(name="127.0.0.1.test")
    watcher = Watcher(lets=False)
    watcher.watch()
    assert await look_up("127.0.0.1") == ["127.0.0.1"]
    assert watcher.asked == set()
    assert await look_up("127.0.0.1.test") == []
    assert watcher.asked == {("127.0.0.1.test", site.host)}
    watcher.unwatch()


async def test_who_takes_our_place_or_is_gone_does_not_turn_others_off(
    sites: Sites,
) -> None:
    if not is_reactor_installed():
        pytest.skip("needs Twisted's reactor")
    from twisted.internet import reactor

    site = sites.add(name="shop.test")
    watcher = Watcher(lets=False)
    before = reactor.nameResolver
    watcher.watch()
    reactor.installNameResolver(before)
    assert await look_up("shop.test") == [site.host]
    watcher.watch()
    assert await look_up("shop.test") == []
    watcher.unwatch()
    assert reactor.nameResolver is before
    watcher.watch()
    del watcher  # with its crawl
    assert len(await look_up("shop.test")) == 1
