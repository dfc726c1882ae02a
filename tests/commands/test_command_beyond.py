"""`scrapy robots` says what a project's choices beyond the protocol (REP.md section 13) make of a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.behaviours import answer
from tests.helpers.robots_command import robots_crawls
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites


async def test_what_the_choices_make_of_urls(sites: Sites, tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("User-agent: *\nDisallow: /mine\n")
    named, ignored = sites.add(), sites.add()
    locked, walled = sites.add(robots=403), sites.add(robots=answer(b"<html><p>wait"))
    overrides = f'{{"{named.host}": "{own}", "{ignored.host}": null}}'
    on = {"REP_OVERRIDES": overrides, "REP_FORBIDDEN": "disallow", "REP_CHALLENGE": "defer"}
    defer = {"REP_FORBIDDEN": "defer"}
    refused = "HTTP 403, and REP_FORBIDDEN is 'disallow'"
    later = "robots.txt unreachable (HTTP 403, REP_FORBIDDEN is 'defer'): nothing may be fetched for now"
    wall = "a page of HTML without a rule, and REP_CHALLENGE is 'defer'"
    own_file = f"REP_OVERRIDES names {own} instead"
    ignores = "REP_OVERRIDES says to ignore it"
    rows: list[tuple[str, dict[str, Any], int, str, str]] = [
        (named.url("/mine"), on, 1, "line 2: Disallow: /mine", own_file),
        (ignored.url("/"), on, 0, f"{ignores}: no restrictions", ignores),
        (locked.url("/"), on, 1, f"{refused}: nothing may be fetched", "REP_FORBIDDEN"),
        (locked.url("/"), defer, 3, later, ""),
        (walled.url("/"), on, 3, wall, ""),
        (locked.url("/"), {}, 0, "no robots.txt (HTTP 403): no restrictions", ""),
    ]
    with every_row() as checking:
        for url, settings, status, because, setting in rows:
            with checking(because):
                done = await robots_crawls(tmp_path, url, "--json", settings=settings)
                (line,) = done.json
                assert done.status == status
                assert because in line["reason"]
                assert setting in (line["setting"] or "")
    assert named.requests == ignored.requests == []
    done = await robots_crawls(tmp_path, named.url("/mine"), named.url("/x"), settings=on)
    assert (
        f"{named.url('/robots.txt')}, not fetched: setting: REP_OVERRIDES names {own}" in done.out
    )
    done = await robots_crawls(tmp_path, locked.url("/"), "--explain", settings=on)
    assert "  setting     HTTP 403, and REP_FORBIDDEN is 'disallow'\n" in done.out
    done = await robots_crawls(
        tmp_path, named.url("/"), settings={"REP_OVERRIDES": '{"a.example": "none.txt"}'}
    )
    assert done.status != 0
    assert "REP_OVERRIDES: can't read 'none.txt', for a.example" in done.err
