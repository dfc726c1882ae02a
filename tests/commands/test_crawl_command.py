"""`scrapy crawl` in a project, with everything on that tells of decisions: as users have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.process import REACTORS, arguments_of, environment, on_every_reactor
from tests.helpers.recorded import decisions
from tests.helpers.robots_command import make_project
from tests.helpers.scrapy_process import run_scrapy
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.scrapy_api, pytest.mark.process]


SPIDER = """
import scrapy

class ShopSpider(scrapy.Spider):
    name = "shop"

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split(",")

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
"""

SETTINGS = [
    'USER_AGENT = "ShopBot/1.0"',
    "REP_DEFER_GRACE = 0.1",
    "REP_RETRY_DELAY = 0.1",
    "REP_RETRY_MAX_DELAY = 0.2",
    "TELNETCONSOLE_ENABLED = False",
    "REMOTE_CONTROL_ENABLED = False",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "project", SETTINGS)
    (folder / "shop" / "spiders" / "shop.py").write_text(SPIDER)
    return folder


def crawl(project: Path, urls: list[str], **settings: Any) -> str:
    """Run it to its end. Returns the log."""
    line = arguments_of("crawl", "shop", "-a", f"start={','.join(urls)}", settings=settings)
    done = run_scrapy(line, cwd=project, variables=environment())
    assert done.status == 0, done.err
    assert "Traceback" not in done.err, done.err
    assert " ERROR: " not in done.err, done.err
    return done.err


@on_every_reactor
def test_a_crawl_with_everything_on_logs_and_records_every_verdict(
    sites: Sites, project: Path, reactor: str
) -> None:
    site, away = sites.add(robots=RULES), sites.add(robots=in_turn(503, 503, RULES))
    urls = [site.url("/private/1"), site.url("/page"), away.url("/page"), away.url("/private")]
    log = crawl(
        project,
        urls,
        REP_DECISIONS="%(name)s.jsonl",
        REP_REPORT="robots.html",
        REP_DEFER_GRACE=30,  # the first site may be slow: only the second is unreachable
        **REACTORS[reactor],
    )
    assert log.count("] INFO: Fetched ") == 2
    assert "robots.txt of 2 origins:\n    2 with rules\n" in log
    assert "\nRequests: 2 allowed, 2 forbidden, 2 held (2 released)\n" in log
    records = decisions(project / "shop.jsonl")
    assert sorted(one["verdict"] for one in records) == [
        "disallowed", "disallowed", "held", "held", "released", "released"
    ]  # fmt: skip
    assert {one["agent"] for one in records} == {"ShopBot"}
    page = (project / "robots.html").read_text("utf-8")
    assert "robots.txt in the crawl of <bdi>shop</bdi>" in page
    assert site.count("/private/1") == away.count("/private") == 0


def test_a_crawl_that_found_nothing_says_why(sites: Sites, project: Path) -> None:
    """The question that is asked most."""
    site = sites.add(robots="User-agent: *\nDisallow: /\n")
    log = crawl(project, [site.url("/1"), site.url("/2")])
    assert (
        "WARNING: robots.txt refused every start request (2). If the crawl found nothing, that is "
        "why; your spider may be fine." in log
    )
    assert (
        "Forbidden by robots.txt (line 2: Disallow: /, group *). For details: scrapy robots" in log
    )
    # Nobody has to set anything, and nothing is left behind.
    assert sorted(path.name for path in project.iterdir()) == ["scrapy.cfg", "shop"]
