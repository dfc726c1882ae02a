"""DESIGN.md, "Enabling": however it is enabled, exactly one middleware asks for robots.txt."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from scrapy import Request
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.pqueues import ScrapyPriorityQueue
from scrapy.settings import Settings
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from scrapy_rep import (
    Addon,
    BroadPriorityQueue,
    RepMiddleware,
    UsageItemMiddleware,
    UsageMiddleware,
)
from scrapy_rep.addon import QUEUE
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

BUILT_IN = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
OURS = "scrapy_rep.RepMiddleware"


class Neighbour:
    """A middleware of the project."""


class Subclass(RepMiddleware):
    """The project's own."""


class SubclassOfScrapys(RobotsTxtMiddleware):
    """The project's own, from before it had ours."""


def components(settings: Settings) -> list[Any]:
    """The downloader middlewares in their order, as Scrapy makes its list of them."""
    # The second is what the first is called in older Scrapy.
    merge: Any = getattr(settings, "get_component_priority_dict_with_base", None)
    merged = (merge or settings.getwithbase)("DOWNLOADER_MIDDLEWARES")
    return [load_object(one) for one in build_component_list(merged)]


def with_addon(**project: Any) -> Settings:
    settings = Settings(project)
    Addon().update_settings(settings)
    return settings


BEFORE = components(Settings())
WITHOUT = [one for one in BEFORE if one is not RobotsTxtMiddleware]
REPLACED = [RepMiddleware if one is RobotsTxtMiddleware else one for one in BEFORE]
MOVED = [*WITHOUT, RepMiddleware]

PROJECTS: list[tuple[dict[Any, Any], list[Any]]] = [
    ({}, REPLACED),
    # Who switches the built-in off by hand, as for enabling by hand, means nothing else by it.
    ({BUILT_IN: None}, REPLACED),
    ({RobotsTxtMiddleware: None}, REPLACED),
    # A place that the project chose is ours to take.
    ({BUILT_IN: 950}, MOVED),
    ({RobotsTxtMiddleware: 950}, MOVED),
    ({BUILT_IN: 100}, REPLACED),
    # What the project says about us itself stays.
    ({OURS: 950}, MOVED),
    ({RepMiddleware: 950}, MOVED),
    ({OURS: None}, WITHOUT),
    ({BUILT_IN: None, OURS: 100}, REPLACED),
    ({BUILT_IN: None, OURS: 950}, MOVED),
    ({BUILT_IN: 100, OURS: 950}, MOVED),
    ({BUILT_IN: 100, OURS: None}, WITHOUT),
    ({Subclass: 100}, [Subclass if one is RepMiddleware else one for one in REPLACED]),
    ({Subclass: None}, REPLACED),
    ({Neighbour: 1}, [Neighbour, *REPLACED]),
    ({SubclassOfScrapys: 100}, REPLACED),
    ({BUILT_IN: None, f"{__name__}.SubclassOfScrapys": 950}, MOVED),
    ({BUILT_IN: 100, SubclassOfScrapys: 950}, MOVED),
    ({SubclassOfScrapys: None}, REPLACED),
    ({SubclassOfScrapys: 100, OURS: 950}, MOVED),
    (
        {SubclassOfScrapys: 950, Subclass: 100},
        [Subclass if one is RepMiddleware else one for one in REPLACED],
    ),
]


@pytest.mark.scrapy_api
def test_order_of_middlewares() -> None:
    with every_row() as row:
        for project, order in PROJECTS:
            with row(project):
                assert components(with_addon(DOWNLOADER_MIDDLEWARES=project)) == order
    # After the offsite filter, before all that touches headers.
    names = [one.__name__ for one in components(with_addon())]
    assert names[:3] == ["OffsiteMiddleware", "RepMiddleware", "HttpAuthMiddleware"]


def test_a_subclass_of_scrapys_that_is_replaced_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_addon(DOWNLOADER_MIDDLEWARES={SubclassOfScrapys: 100})
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "DOWNLOADER_MIDDLEWARES: scrapy_rep.RepMiddleware takes the place of "
        f"{__name__}.SubclassOfScrapys, a subclass of Scrapy's RobotsTxtMiddleware, which is not used. "
        "Subclass scrapy_rep.RepMiddleware instead."
    )
    caplog.clear()
    with_addon(DOWNLOADER_MIDDLEWARES={SubclassOfScrapys: None})
    with_addon(DOWNLOADER_MIDDLEWARES={SubclassOfScrapys: 100}, ROBOTSTXT_OBEY=False)
    assert caplog.records == []


def test_preferences_are_looked_at_behind_ours() -> None:
    some: dict[str, Any] = {
        "REP_USAGE": {"tdm": "record"},
        "REP_USAGE_TOKENS": ["CCBot"],
    }
    asking = [{name: value} for name, value in some.items()]
    asking += [{"REP_USAGE_FIELD": "usage"}, {"REP_TDMREP": True}]
    projects: list[tuple[dict[Any, Any], int]] = [
        ({}, 2),
        ({BUILT_IN: 40}, 1),
        ({OURS: 40}, 1),
        ({Subclass: 40}, 1),
        ({OURS: 40, UsageMiddleware: 42, Neighbour: 41}, 2),
    ]
    with every_row() as row:
        for setting, (project, place) in product(asking, projects):
            with row((setting, project)):
                settings = with_addon(**setting, DOWNLOADER_MIDDLEWARES=project)
                found = components(settings)
                ours = next(
                    at for at, one in enumerate(found) if issubclass(one, RepMiddleware)
                )
                assert (found.index(UsageMiddleware), ours < place) == (place, True)
                assert settings["SPIDER_MIDDLEWARES"][UsageItemMiddleware] == 950


def test_the_addon_turns_obeying_on_unless_the_project_says_otherwise() -> None:
    assert Settings().getbool("ROBOTSTXT_OBEY") is False
    assert with_addon().getbool("ROBOTSTXT_OBEY") is True
    assert with_addon(ROBOTSTXT_OBEY=False).getbool("ROBOTSTXT_OBEY") is False
    settings = with_addon()
    Addon().update_settings(settings)  # again, which changes nothing
    assert components(settings) == REPLACED


SCRAPYS_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"


@pytest.mark.scrapy_api
def test_scrapys_default_queue_is_replaced_but_none_that_was_chosen() -> None:
    """On both ends of the versions: tests/engine/test_pqueue.py says what that relies on."""
    assert Settings()[QUEUE] == SCRAPYS_QUEUE
    assert load_object(with_addon()[QUEUE]) is BroadPriorityQueue
    assert with_addon(ROBOTSTXT_OBEY=False)[QUEUE] == SCRAPYS_QUEUE
    # By the project, by another add-on; another default of Scrapy's.
    chosen = [*product((SCRAPYS_QUEUE, ScrapyPriorityQueue), ("project", "addon"))]
    for queue, priority in [*chosen, (ScrapyPriorityQueue, "default")]:
        settings = Settings()
        settings.set(QUEUE, queue, priority)
        Addon().update_settings(settings)
        assert settings[QUEUE] == queue


BY_HAND = {"ADDONS": {}, "DOWNLOADER_MIDDLEWARES": {BUILT_IN: None, OURS: 100}}


@pytest.mark.scrapy_api
async def test_one_middleware_at_most_is_at_work(sites: Sites) -> None:
    """With the add-on, and by hand: Scrapy's own would ask for robots.txt once more."""
    for settings, obeys in (
        ({"DOWNLOADER_MIDDLEWARES": {RobotsTxtMiddleware: 543}}, True),
        ({"ROBOTSTXT_OBEY": "False"}, False),
        ({**BY_HAND, "ROBOTSTXT_OBEY": True}, True),
        # By hand the master switch is by hand too, and Scrapy's default is off.
        (BY_HAND, False),
    ):
        site = sites.add(robots=RULES)
        result = await crawl([site.url("/private"), site.url("/x")], settings)
        assert result.status(site.url("/x")) == 200
        assert result.disallowed(site.url("/private")) is obeys
        assert (
            site.count("/robots.txt") == result.stat("robotstxt/request_count") == obeys
        )
        assert (
            result.stat("rep/outcome/rules")
            == result.stat("robotstxt/forbidden")
            == obeys
        )
        assert site.count("/private") == (not obeys)
        result.assert_clean()


@pytest.mark.scrapy_api
async def test_two_middlewares_at_work_by_hand_are_reported(sites: Sites) -> None:
    """Without the add-on, whatever the project lists is used."""
    for listed in ({OURS: 100}, {BUILT_IN: None, SubclassOfScrapys: 90, OURS: 100}):
        site = sites.add(robots=RULES)
        settings = {
            "ADDONS": {},
            "ROBOTSTXT_OBEY": True,
            "DOWNLOADER_MIDDLEWARES": listed,
        }
        result = await crawl([site.url("/x")], settings)
        [warning] = [
            line for line in result.log.splitlines() if " is enabled beside " in line
        ]
        kind = SubclassOfScrapys if SubclassOfScrapys in listed else RobotsTxtMiddleware
        assert (
            f"{kind.__module__}.{kind.__name__} is enabled beside RepMiddleware"
            in warning
        )
        assert "fetched twice" in warning


async def test_switches_of_a_spider_and_of_a_request(sites: Sites) -> None:
    """custom_settings are above the add-on's; dont_obey_robotstxt means not even to ask."""

    class RudeSpider(ListSpider):
        custom_settings = {"ROBOTSTXT_OBEY": False}

    site = sites.add(robots=RULES)
    url = site.url("/private")
    freed: list[str | Request] = [
        Request(f"{url}{value}", meta={"dont_obey_robotstxt": value})
        for value in (True, 1, "yes")
    ]
    for spider, requests in ((RudeSpider, [url]), (ListSpider, freed)):
        result = await crawl(spider, requests=requests)
        assert [*result.responses.values()] == [200] * len(requests)
        result.assert_clean()
    assert site.count("/robots.txt") == 0
