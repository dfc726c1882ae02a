"""`scrapy robots` says what a project's choices beyond the protocol (REP.md section 13) make of a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import answer
from tests.helpers.robots_command import project, robots
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

pytestmark = pytest.mark.process

__all__ = ["project"]

PACED = "User-agent: MJ12bot\nRequest-rate: 1/10 0600-0845\nVisit-time: 0600-0845\nDisallow: /x\n"


def test_what_the_choices_make_of_urls(sites: Sites, project: Path) -> None:
    own = project / "own.txt"
    own.write_text("User-agent: *\nDisallow: /mine\n")
    named, ignored = sites.add(), sites.add()
    locked, walled = sites.add(robots=403), sites.add(robots=answer(b"<html><p>wait"))
    overrides = f'{{"{named.host}": "{own}", "{ignored.host}": null}}'
    on = {"REP_OVERRIDES": overrides, "REP_FORBIDDEN": "disallow", "REP_CHALLENGE": "defer"}
    rows: list[tuple[str, dict[str, Any], int, str, str]] = [
        (
            named.url("/mine"),
            on,
            1,
            "line 2: Disallow: /mine",
            f"REP_OVERRIDES names {own} instead",
        ),
        (
            ignored.url("/"),
            on,
            0,
            "REP_OVERRIDES says to ignore it: no restrictions",
            "REP_OVERRIDES",
        ),
        (
            locked.url("/"),
            on,
            1,
            "HTTP 403, and REP_FORBIDDEN is 'disallow': nothing may be fetched",
            "REP_FORBIDDEN",
        ),
        (
            locked.url("/"),
            {"REP_FORBIDDEN": "defer"},
            3,
            "robots.txt unreachable (HTTP 403, REP_FORBIDDEN is 'defer'): nothing may be fetched for now",
            "",
        ),
        (walled.url("/"), on, 3, "a page of HTML without a rule, and REP_CHALLENGE is 'defer'", ""),
        (locked.url("/"), {}, 0, "no robots.txt (HTTP 403): no restrictions", ""),
    ]
    with every_row() as checking:
        for url, settings, status, because, setting in rows:
            with checking(because):
                done = robots(project, url, "--json", settings=settings)
                (line,) = done.json
                assert done.status == status
                assert because in line["reason"]
                assert setting in (line["setting"] or "")
    assert named.requests == ignored.requests == []
    done = robots(project, named.url("/mine"), named.url("/x"), settings=on)
    assert (
        f"{named.url('/robots.txt')}, not fetched: setting: REP_OVERRIDES names {own}" in done.out
    )
    done = robots(project, locked.url("/"), "--explain", settings=on)
    assert "  setting     HTTP 403, and REP_FORBIDDEN is 'disallow'\n" in done.out
    done = robots(project, named.url("/"), settings={"REP_OVERRIDES": '{"a.example": "none.txt"}'})
    assert done.status != 0
    assert "REP_OVERRIDES: can't read 'none.txt', for a.example" in done.err


def test_a_name_with_digits_and_the_pace(sites: Sites, project: Path) -> None:
    site = sites.add(robots=PACED)
    done = robots(project, site.url("/x"), "--agent", "MJ12bot", "--explain")
    assert done.status == 1
    assert "  agent          MJ12bot\n" in done.out
    assert "  group          MJ (line 1)\n" in done.out
    assert "  request-rate   10 s (line 2), ignored: REP_CRAWL_DELAY is off\n" in done.out
    assert "  visit-time     0600-0845 (line 3), not obeyed\n" in done.out
    assert done.err.count("The product token MJ12bot has digits.") == 1
    done = robots(project, site.url("/x"), "--agent", "MJ12bot", "--explain", "--json")
    (line,) = done.json
    assert [group["applied"] for group in line["groups"]] == [True]
    assert (line["crawl_delay"], line["visit_time"]) == (10.0, "0600-0845")
    assert robots(project, site.url("/x"), "--agent", "008").status == 0
