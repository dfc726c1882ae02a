"""`scrapy fetch` and `scrapy shell` in processes of their own: they end by themselves, whatever
the robots.txt, and fetch nothing that it forbids."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, answer, in_turn, silence
from tests.helpers.process import REACTORS, arguments_of, environment, on_every_reactor
from tests.helpers.process.forked import run_scrapy
from tests.helpers.servers import Sites

pytestmark = pytest.mark.process


SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_rep.Addon": 300},
    "USER_AGENT": "testbot/1.0",
    "REP_DEFER_GRACE": 0.1,
    "REP_DEFER_MAX_WAIT": 1,
    "REP_RETRY_DELAY": 0.1,
    "REP_RETRY_MAX_DELAY": 0.2,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


class Result:
    def __init__(self, output: str, log: str, seconds: float) -> None:
        self.output, self.log, self.seconds = output.strip(), log, seconds


def run(folder: Path, *arguments: str, **settings: Any) -> Result:
    began = time.monotonic()
    line = arguments_of(*arguments, settings={**SETTINGS, **settings})
    done = run_scrapy(line, cwd=folder, variables=environment())
    assert done.status == 0, done.err
    assert "Traceback" not in done.err, done.err
    assert " ERROR: " not in done.err, done.err
    return Result(done.out, done.err, time.monotonic() - began)


def fetch(folder: Path, url: str, **settings: Any) -> Result:
    return run(folder, "fetch", url, **settings)


def shell(folder: Path, url: str, **settings: Any) -> Result:
    return run(folder, "shell", url, "-c", "print('It is', response)", **settings)


def test_fetch_what_is_allowed(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES, pages={"/page": "the page"})
    assert fetch(tmp_path, site.url("/page")).output == "the page"
    assert site.count("/page") == 1


def test_fetch_what_is_forbidden(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    result = fetch(tmp_path, site.url("/private"))
    assert result.output == ""
    assert "Forbidden by robots.txt (line 2: Disallow: /private, group *)" in result.log
    assert site.count("/private") == 0


# On every reactor only where something is held.


@on_every_reactor
@pytest.mark.parametrize("robots", [503, silence()], ids=["503", "silent"])
def test_fetch_from_an_unreachable_site(
    sites: Sites, tmp_path: Path, reactor: str, robots: Any
) -> None:
    """The command waits as long as a crawl would, and gives up."""
    site = sites.add(robots=robots)
    result = fetch(tmp_path, site.url("/page"), **REACTORS[reactor])
    assert result.output == ""
    assert f"1 request of {site.url('')} given up" in result.log
    assert site.count("/page") == 0


def test_fetch_as_soon_as_the_site_is_back(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=in_turn(503, 503, answer(RULES)), pages={"/page": "the page"})
    result = fetch(tmp_path, site.url("/page"), REP_DEFER_MAX_WAIT=60)
    assert result.output == "the page"
    assert result.seconds < 30  # takes one; but not the 60 that it might


def test_shell_with_what_is_allowed(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    result = shell(tmp_path, site.url("/page"))
    assert f"It is <200 {site.url('/page')}>" in result.output


def test_shell_with_what_is_forbidden(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=RULES)
    result = shell(tmp_path, site.url("/private"))
    assert "It is None" in result.output
    assert site.count("/private") == 0


@pytest.mark.parametrize("robots", [503, silence()], ids=["503", "silent"])
def test_shell_with_an_unreachable_site(sites: Sites, tmp_path: Path, robots: Any) -> None:
    site = sites.add(robots=robots)
    result = shell(tmp_path, site.url("/page"))
    assert "It is None" in result.output
    assert site.count("/page") == 0


@on_every_reactor
def test_shell_as_soon_as_the_site_is_back(sites: Sites, tmp_path: Path, reactor: str) -> None:
    site = sites.add(robots=in_turn(503, 503, answer(RULES)))
    result = shell(tmp_path, site.url("/page"), REP_DEFER_MAX_WAIT=60, **REACTORS[reactor])
    assert f"It is <200 {site.url('/page')}>" in result.output
