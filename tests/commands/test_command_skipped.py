"""Sites that a crawl leaves out (`REP_CRAWL_DELAY` with "skip", `REP_FORBIDDEN`), and bot walls, as
`scrapy robots` sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.inspection.explanation import RobotsFile
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import answer
from tests.helpers.crawling import crawl
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset
from tests.helpers.storing import in_a_file, missing, open_

ROBOTS = (
    "User-agent: *\nAllow: /a\nCrawl-delay: 100\n\nUser-agent: other\nDisallow: /b\n"
)
WHY = "line 3: crawl-delay: 100, more than REP_CRAWL_DELAY allows"
SKIP = {"REP_CRAWL_DELAY": '{"most": 30, "beyond": "skip"}'}


def limit(most: float, beyond: str = "skip") -> dict[str, Any]:
    return {"REP_CRAWL_DELAY": f'{{"most": {most}, "beyond": "{beyond}"}}'}


async def test_verdicts_are_those_of_a_crawl(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=ROBOTS)
    url = site.url("/a")
    with every_row() as checking:
        for settings, allowed in (
            (SKIP, False),
            (limit(99.9), False),
            (limit(100), True),
            (limit(30, "limit"), True),
            ({"REP_CRAWL_DELAY": "True"}, True),
            ({}, True),
        ):
            with checking(settings):
                done = await robots_crawls(tmp_path, url, "--json", settings=settings)
                [line] = done.json
                assert (done.status, line["allowed"]) == (0 if allowed else 1, allowed)
                assert line["crawl_delay"] == 100
                # A crawl that keeps the delay would take as long.
                if not allowed:
                    assert (line["line"], line["group"], line["verdict"]) == (
                        3,
                        "*",
                        "disallowed",
                    )
                    assert line["reason"] == WHY
                    result = await crawl([url], settings)
                    assert WHY in str(result.failure(url))


async def test_why_a_site_is_left_out(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=ROBOTS)
    done = await robots_crawls(
        tmp_path, site.url("/a"), site.url("/robots.txt"), settings=SKIP
    )
    first, second = done.out.splitlines()[1:3]
    assert first.startswith("disallowed")
    assert first.endswith(f"{WHY} (group *)")
    assert second.startswith("allowed")
    told = (site.url("/a"), "--explain")
    done = await robots_crawls(tmp_path, *told, settings=SKIP)
    assert (
        "  It asks for 100 s between two requests (line 3): more than REP_CRAWL_DELAY allows, so nothing "
        "is fetched.\n"
    ) in done.out
    assert "rule" not in done.out
    done = await robots_crawls(tmp_path, *told, "--json", settings=SKIP)
    assert done.json[0]["matched"] == []
    # Another agent's group asks for nothing.
    asked = (site.url("/a"), site.url("/b"), "--agent", "other", "--json")
    done = await robots_crawls(tmp_path, *asked, settings=SKIP)
    assert [(line["allowed"], line["line"]) for line in done.json] == [
        (True, None),
        (False, 6),
    ]


def test_files_and_what_changes_between_them(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("User-agent: *\nAllow: /a\n")
    (tmp_path / "new.txt").write_text(ROBOTS)
    done = robots_here(tmp_path, "--file", "new.txt", "/a", "--json", settings=SKIP)
    assert [line["reason"] for line in done.json] == [WHY]
    compared = ("--compare", "old.txt", "new.txt", "/a")
    assert (
        "allowed -> disallowed" in robots_here(tmp_path, *compared, settings=SKIP).out
    )
    assert "allowed -> disallowed" not in robots_here(tmp_path, *compared).out


async def test_pages_and_sitemaps_of_such_a_site(sites: Sites, tmp_path: Path) -> None:
    """Nothing is fetched there; what another site's sitemap lists there counts as forbidden."""
    slow, locked, here = sites.add(robots=ROBOTS), sites.add(robots=403), sites.add()
    here.set("/robots.txt", f"Sitemap: {here.url('/s.xml')}\n")
    here.set(
        "/s.xml",
        urlset([slow.url("/a"), slow.url("/c"), locked.url("/x"), here.url("/y")]),
    )
    settings = {**SKIP, "REP_FORBIDDEN": "disallow"}
    for site, why in (
        (slow, WHY),
        (locked, "HTTP 403, and REP_FORBIDDEN is 'disallow'"),
    ):
        done = await robots_crawls(
            tmp_path, "--page", site.url("/a"), settings=settings
        )
        assert done.status == 1
        assert f"forbidden by {why}" in done.out + done.err
        assert site.pages_asked == []
    done = await robots_crawls(tmp_path, "--sitemaps", here.url("/"), settings=settings)
    for line in (
        f"2  by line 3 of {slow.url('/robots.txt')}: crawl-delay: 100, more than REP_CRAWL_DELAY allows",
        f"1  by {locked.url('/robots.txt')}: HTTP 403, and REP_FORBIDDEN is 'disallow'",
    ):
        assert line in done.out
    done = await robots_crawls(
        tmp_path, "--sitemaps", here.url("/"), "--json", settings=settings
    )
    assert [(one["urls"], one["forbidden"]) for one in done.json] == [(4, 3)]
    assert [rule["line"] for rule in done.json[0]["rules"]] == [3, None]


def test_the_largest_delay_is_that_of_the_group_that_applies() -> None:
    robots = RobotsFile(Outcome.RULES, ROBOTS.encode())
    for chain, obey_global, allowed in (
        ((), True, False),
        (("x",), True, False),
        (("x",), False, True),
        (("other",), True, True),
        (("x", "other"), True, True),
    ):
        why = robots.explain("/a", "/a", chain, obey_global=obey_global, max_delay=99.0)
        assert why.allowed is allowed


@pytest.mark.parametrize(
    ("status", "sign"),
    [(403, "cf-mitigated: challenge"), (202, "x-amzn-waf-action: challenge")],
)
async def test_a_bot_wall_is_named(
    sites: Sites, tmp_path: Path, status: int, sign: str
) -> None:
    header = tuple(sign.split(": "))
    site = sites.add(robots=answer(b"", status, [header]))  # type: ignore[list-item]
    done = await robots_crawls(tmp_path, site.url("/x"))
    assert done.status == 0
    assert f"a bot wall answered ({sign})" in done.out
    done = await robots_crawls(
        tmp_path, site.url("/x"), settings={"REP_CHALLENGE": "hold"}
    )
    assert done.status == 3
    reason = f"HTTP {status}, {sign}, and REP_CHALLENGE is 'hold'"
    assert (
        f"robots.txt unreachable ({reason}): nothing may be fetched for now" in done.out
    )
    assert "a bot wall answered" not in done.out


def test_a_bot_wall_that_was_stored(tmp_path: Path) -> None:
    storage = open_(in_a_file(tmp_path))
    storage.save(replace(missing(), status=403, wall="cf-mitigated: challenge"))
    storage.close()
    done = robots_here(tmp_path, "--cache", settings=in_a_file(tmp_path))
    assert "HTTP 403; a bot wall answered (cf-mitigated: challenge)" in done.out
