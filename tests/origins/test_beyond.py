"""REP.md section 13: what users may choose beyond the protocol, in crawls, logs and records."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.choices import Choices, in_outage
from scrapy_rep.origins.status import Stale, Unreachable, Unrestricted
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import is_challenge
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry
from tests.helpers.behaviours import RULES, RULES_BYTES, answer, in_turn
from tests.helpers.crawling import DAY, DOWN, NO, OK, ONE_ATTEMPT, CrawlResult, crawl
from tests.helpers.held import origin_of
from tests.helpers.recorded import decisions
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import NOW, A, rules
from tests.origins.conftest import Runs

WALL = b"<!DOCTYPE html>\n<html><title>Just a moment</title>\n<p>Allow scripts to go on\n</html>"
HOUR = 3600.0


def outcome(result: CrawlResult, url: str) -> str:
    error = result.failure(url)
    return str(result.status(url)) if error is None else type(error).__name__


async def recorded(
    sites: list[Site], folder: Path, **settings: Any
) -> tuple[CrawlResult, dict[str, dict[str, Any]]]:
    path = folder / "decisions.jsonl"
    settings = {**ONE_ATTEMPT, "REP_DECISIONS": path, **settings}
    result = await crawl([site.url("/") for site in sites], settings)
    result.assert_clean()
    found = decisions(path) if path.exists() else []
    return result, {f"{one['origin']}/": one for one in found}


@pytest.mark.parametrize(
    ("value", "wanted", "says"),
    [
        ("allow", "200", ""),
        ("disallow", NO, "HTTP {}, and {}"),
        ("hold", DOWN, "HTTP {}, {}"),
    ],
)
async def test_401_and_403_mean_what_the_project_says(
    sites: Sites, tmp_path: Path, value: str, wanted: str, says: str
) -> None:
    refusing = {status: sites.add(robots=status) for status in (401, 403)}
    others = [sites.add(robots=404), sites.add(robots=RULES)]
    result, lines = await recorded(
        [*refusing.values(), *others], tmp_path, REP_FORBIDDEN=value
    )
    told, on = f"REP_FORBIDDEN is '{value}'", value != "allow"
    for status, url in ((status, site.url("/")) for status, site in refusing.items()):
        reason = says.format(status, told)
        assert outcome(result, url) == wanted
        assert reason in str(result.failure(url))
        assert not on or reason in lines[url]["reason"]
        assert value != "disallow" or lines[url]["status"] == status
    assert [outcome(result, site.url("/")) for site in others] == ["200"] * 2
    assert result.stat("rep/beyond/forbidden") == 2 * on
    told_once = (
        f"Beyond the protocol: {told}",
        "Origins decided beyond the protocol: 2 by REP_FORBIDDEN",
    )
    assert [words in result.log for words in told_once] == [on, on]
    assert (result.log.count(told) >= 3) is on


@pytest.mark.parametrize(
    ("value", "refused", "fetches"), [("disallow", NO, 2), ("hold", DOWN, 3)]
)
async def test_what_is_forbidden_stays_so_while_it_is_known(
    sites: Sites, runs: Runs, value: str, refused: str, fetches: int
) -> None:
    """A run that takes 403 for "no restrictions" shares its storage with one that doesn't."""
    site = sites.add(robots=403)
    for chosen, wanted in (("allow", OK), (value, refused), ("allow", OK)):
        found = await runs.next(site.url("/a"), site.url("/b"), REP_FORBIDDEN=chosen)
        assert found == [wanted, wanted]
        runs.clock.now += DAY / 2 if value == "disallow" else DAY
    assert site.count("/robots.txt") == fetches


@pytest.mark.parametrize(("value", "wanted"), [("allow", "200"), ("hold", DOWN)])
async def test_a_page_of_html_without_a_rule_may_be_a_bot_walls(
    sites: Sites, tmp_path: Path, value: str, wanted: str
) -> None:
    walls = [sites.add(robots=answer(WALL, status)) for status in (200, 202)]
    fine = [sites.add(robots=one) for one in (answer(WALL, 404), RULES, "")]
    result, lines = await recorded([*walls, *fine], tmp_path, REP_CHALLENGE=value)
    told = "a page of HTML without a rule, and REP_CHALLENGE is 'hold'"
    for url in (site.url("/") for site in walls):
        assert outcome(result, url) == wanted
        assert value == "allow" or lines[url]["reason"].endswith(told)
    assert [outcome(result, site.url("/")) for site in fine] == ["200"] * 3
    assert result.stat("rep/beyond/challenge") == (2 if value == "hold" else 0)
    assert (
        "Origins decided beyond the protocol: 2 by REP_CHALLENGE" in result.log
    ) is (value == "hold")


def test_what_is_taken_for_a_bot_wall() -> None:
    page = b"<html>\n%s\n</html>"
    rows = {
        "a rule": (200, page % b"User-agent: *\nDisallow: /x", False),
        "a rule, indented, without a colon": (200, page % b"  disallow /x", False),
        "an empty rule": (200, page % b"Disallow:", False),
        "a typo": (200, page % b"Dissallow: *.php", False),
        "script": (200, page % b"allow: true,\ndisallowed: [1]\nallow scripts", True),
        "a byte order mark": (202, b"\xef\xbb\xbf \n<html>", True),
        "text": (200, b"welcome", False),
        "nothing": (200, b"", False),
        "another status": (203, b"<html>", False),
    }
    with every_row() as checking:
        for name, (status, body, wall) in rows.items():
            with checking(name):
                assert is_challenge(status, body) is wall


async def test_a_robots_txt_of_ones_own_for_named_hosts(
    sites: Sites, tmp_path: Path
) -> None:
    own, path = tmp_path / "own.txt", tmp_path / "decisions.jsonl"
    own.write_bytes(RULES_BYTES.replace(b"private", b"mine") + b"Dissallow /typo\n")
    named, ignored, other = some = [sites.add(robots=RULES) for _ in range(3)]
    (empty := tmp_path / "empty.txt").touch()
    overrides = {named.host: own, ignored.host: None, "empty.example": empty}
    every = [site.url(path) for site in some for path in ("/private", "/mine")]
    result = await crawl(every, {"REP_OVERRIDES": overrides, "REP_DECISIONS": path})
    result.assert_clean()
    assert [outcome(result, url) for url in every] == [
        "200",
        NO,
        "200",
        "200",
        NO,
        "200",
    ]
    assert [site.count("/robots.txt") for site in some] == [0, 0, 1]
    for told in (
        f"line 2: Disallow: /mine, group *; REP_OVERRIDES names {own} instead",
        f"has 2 findings about the file for {named.host}. The first: line 3: ",
        "about the file for empty.example. The first: the file has no rules",
        "beyond the protocol: 2 by REP_OVERRIDES",
        f"robots.txt of {origin_of(ignored)}: REP_OVERRIDES says to ignore it",
    ):
        assert told in result.log
    assert f"the file for {ignored.host}" not in result.log
    lines = [one for one in decisions(path) if one["origin"] != origin_of(other)]
    assert sorted(one["verdict"] for one in lines) == ["allowed"] * 3 + ["disallowed"]
    assert all("REP_OVERRIDES" in one["reason"] for one in lines)
    assert (
        result.stat("robotstxt/request_count")
        == result.stat("rep/beyond/overrides") - 1
        == 1
    )


def test_an_override_goes_by_the_closest_domain(tmp_path: Path) -> None:
    names = ("example.com", "*.example.com", "*.www.example.com", "b\u00fccher.example")
    files = {name: tmp_path / f"{number}.txt" for number, name in enumerate(names)}
    for file in files.values():
        file.write_text("")
    choices = Choices(RepSettings.from_settings({"REP_OVERRIDES": files}))  # type: ignore[arg-type]
    assert choices is not None
    found = {
        "example.com": "0.txt",
        "www.example.com": "1.txt",
        "a.b.example.com": "1.txt",
        "x.www.example.com": "2.txt",
        "notexample.com": None,
        "com": None,
        "xn--bcher-kva.example": "3.txt",
    }
    for host, name in found.items():
        override = choices.own_answer(Origin("https", host, 443), NOW)
        assert (
            (override is None)
            if name is None
            else (override and f"/{name} " in override.setting)
        )


async def test_a_wrong_override_ends_the_crawl_at_its_start(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await crawl(
        site.url("/"), {"REP_OVERRIDES": {"example.com": "no/such/file.txt"}}
    )
    assert "can't read 'no/such/file.txt', for example.com" in result.log
    assert site.requests == []
    for value in ({"http://example.com/": "x"}, {"example.com:8080": "x"}):
        with pytest.raises(SettingsError, match="but must be a dict from hosts"):
            RepSettings.from_settings({"REP_OVERRIDES": value})  # type: ignore[arg-type]


def ending(
    runs: Runs, file: str | Path | None, seconds: float = HOUR
) -> dict[str, object]:
    """An override that ends so many *seconds* from now."""
    until = datetime.fromtimestamp(runs.clock.now + seconds, timezone.utc)
    return {"file": file if file is None else str(file), "until": until.isoformat()}


def both(site: Site) -> list[float | str]:
    return [site.url("/private"), site.url("/mine")]


@pytest.mark.loop
@pytest.mark.parametrize(
    "origins", [10_000, 1]
)  # in memory: the second leaves, and comes back
async def test_an_override_ends_at_its_date(
    sites: Sites, tmp_path: Path, runs: Runs, origins: int
) -> None:
    """In the middle of a crawl: from then on, the site's own robots.txt counts, and is asked for."""
    own = tmp_path / "own.txt"
    own.write_text("User-agent: *\nDisallow: /mine\n")
    named, ignored, other = (sites.add(robots=RULES) for _ in range(3))
    overrides = {named.host: ending(runs, own), ignored.host: ending(runs, None)}
    steps = [*both(named), *both(ignored)]
    found = await runs.next(
        *steps,
        *at(0.99, other.url("/x")),
        *steps,
        *at(0.01, other.url("/x")),
        *steps,
        REP_OVERRIDES=overrides,
        REP_CACHE_MAX_ORIGINS=origins,
    )
    during, after = [OK, NO, OK, OK], [NO, OK, NO, OK]
    assert found == [*during, OK, *during, OK, *after]
    assert [site.robots_fetches for site in (named, ignored)] == [1, 1]
    log = runs.result.log
    assert f"REP_OVERRIDES names {own} instead until 2027-01-15T09:00:00Z" in log
    assert "REP_OVERRIDES says to ignore it until 2027-01-15T09:00:00Z" in log
    assert "has changed" not in log
    assert runs.kept(named).body == RULES_BYTES
    # A run after that says that the setting is out of date.
    found = await runs.next(*steps, REP_OVERRIDES=overrides)
    assert found == after
    for site in (named, ignored):
        ended = f"WARNING REP_OVERRIDES: the entry for {site.host} ended on 2027-01-15T09:00:00Z"
        assert ended in runs.result.log


async def test_an_override_that_has_ended_is_no_older_copy(
    sites: Sites, tmp_path: Path, runs: Runs
) -> None:
    """Neither while the site is unreachable, nor if it sends a 304, for which nobody asked."""
    own = tmp_path / "own.txt"
    own.write_text("User-agent: *\nDisallow: /mine\n")
    for robots in (503, answer(status=304)):
        site = sites.add(robots=robots)
        override = {site.host: ending(runs, own)}
        found = await runs.next(
            *both(site), 2 * HOUR, *both(site), REP_OVERRIDES=override
        )
        assert found == [OK, NO, DOWN, DOWN]
        assert not runs.kept(site).has_copy
    # What the site said before the override is one.
    site = sites.add(robots=in_turn(RULES, 503))
    assert await runs.next(*both(site)) == [NO, OK]
    override = {site.host: ending(runs, own, 2 * DAY)}
    found = await runs.next(*both(site), 3 * DAY, *both(site), REP_OVERRIDES=override)
    assert found == [OK, NO, NO, OK]


def test_the_next_override_counts_once_the_closest_has_ended(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("")
    (tmp_path / "one.txt").write_text("")
    overrides = {
        "*.example.com": str(tmp_path / "all.txt"),
        "a.example.com": {"file": str(tmp_path / "one.txt"), "until": "2026-01-31"},
    }
    choices = Choices(RepSettings.from_settings({"REP_OVERRIDES": overrides}))  # type: ignore[arg-type]
    origin, end = Origin("https", "a.example.com", 443), 1769817600.0
    for now, name in ((end - 1, "one.txt"), (end, "all.txt")):
        own_answer = choices.own_answer(origin, now)
        assert own_answer is not None
        assert name in own_answer.setting


FAR = 40 * DAY
LADDER = [
    # Unreachable for, with a copy?, seconds since a page answered, what it is good for.
    (0.0, True, None, Unreachable),
    (0.0, False, None, Unreachable),
    (12 * HOUR - 1, True, HOUR, Unreachable),
    (12 * HOUR - 1, False, HOUR, Unreachable),
    (12 * HOUR, True, None, Stale),
    (12 * HOUR, False, None, Unrestricted),
    (30 * DAY - 1, True, None, Stale),
    (30 * DAY - 1, False, None, Unrestricted),
    (30 * DAY, True, HOUR, Unrestricted),
    (30 * DAY, False, HOUR, Unrestricted),
    (30 * DAY, True, 7 * DAY, Unrestricted),
    (30 * DAY, True, 8 * DAY, Unreachable),
    (30 * DAY, False, None, Unreachable),
    (30 * DAY, False, -HOUR, Unreachable),  # a clock that was set
]


def test_the_ladder_as_a_table() -> None:
    settings = RepSettings(unreachable_rules="google-2026")
    with every_row() as checking:
        for seconds, copy, ago, expected in LADDER:
            outage = {
                "unreachable_for": seconds,
                "page_answered_at": NOW - (FAR if ago is None else ago),
            }
            entry = rules(**outage) if copy else Entry(A, **outage)
            with checking((seconds, copy, ago)):
                assert in_outage(entry, NOW, settings) is expected


def at(hours: float, url: str) -> list[float | str]:
    return [hours * HOUR, url]


@pytest.mark.parametrize("copied", [True, False])
async def test_no_crawling_then_the_copy_then_no_restrictions(
    sites: Sites, runs: Runs, copied: bool
) -> None:
    """In runs that share only a storage. Without a copy: no restrictions after 12 hours."""
    site = sites.add(robots=in_turn(RULES, 503) if copied else 503)
    private, page, rules = (
        site.url("/private"),
        site.url("/x"),
        {"REP_UNREACHABLE_RULES": "google-2026"},
    )
    first = [page] if copied else []
    # Of the time between two attempts three hours count at most.
    early = [*at(25, private), *at(3, private), *at(6, private), *at(3, private)]
    found = await runs.next(*first, *early, **rules)
    assert found == [*[OK] * copied, DOWN, DOWN, DOWN, DOWN]
    assert "older copy" not in runs.result.log
    found = await runs.next(
        *at(3, private),  # 12 hours
        *at(1, page),
        *[*at(7.2 * 24, private), *at(1, page)] * 4,
        *at(24, private),  # 30 days, and pages answer
        *at(20 * 24, private),  # no page has answered for long
        **rules,
    )
    assert found == [*[NO if copied else OK, OK] * 5, OK, DOWN]
    assert (
        "Origins decided beyond the protocol: 1 by REP_UNREACHABLE_RULES"
        in runs.result.log
    )
    site.set("/robots.txt", RULES)
    assert await runs.next(*at(24, private), **rules) == [NO]  # an answer ends it
