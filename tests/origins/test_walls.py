"""Bot walls by the signs that their makers document, at any status; REP.md section 13."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scrapy.http import Headers

from scrapy_rep.origins.answer import MAX_HEADER, wall_sign
from scrapy_rep.protocol.availability import WALL_SIGNS
from scrapy_rep.storages.base import UnreadableEntry
from tests.helpers.behaviours import (
    RULES,
    RULES_BYTES,
    Behaviour,
    answer,
    head,
    in_turn,
    raw,
)
from tests.helpers.crawling import DAY, DOWN, NO, OK, ONE_ATTEMPT, crawl
from tests.helpers.held import HOLD, origin_of, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.storing import rules
from tests.origins.conftest import Runs

CLOUDFLARE, AWS, CAPTCHA = WALL_SIGNS
PAGE = b"<!DOCTYPE html><title>Just a moment...</title>"
WALLS = [
    (403, CLOUDFLARE, PAGE),
    (405, CAPTCHA, b""),
    (202, AWS, b""),
    (200, CLOUDFLARE, PAGE),
]


def walled(status: int, sign: str, body: bytes = PAGE) -> Behaviour:
    return answer(body, status, [signed(sign)], type="text/html")


def signed(sign: str) -> tuple[str, str]:
    name, _, value = sign.partition(": ")
    return name, value


def test_the_signs_in_headers() -> None:
    rows = {
        "Cloudflare's": ([("CF-Mitigated", "challenge")], CLOUDFLARE),
        "AWS's": ([("x-amzn-waf-action", "challenge")], AWS),
        "a captcha": ([("x-amzn-waf-action", "captcha")], CAPTCHA),
        "capitals and blanks": ([("X-Amzn-Waf-Action", "  CAPTCHA ")], CAPTCHA),
        "folded into one line": ([("cf-mitigated", "other, challenge")], CLOUDFLARE),
        "two lines": (
            [("cf-mitigated", "other"), ("cf-mitigated", "challenge")],
            CLOUDFLARE,
        ),
        "another value": ([("cf-mitigated", "block")], ""),
        "a value of another header": ([("cf-mitigated", "captcha")], ""),
        "a word in it": ([("cf-mitigated", "no challenge")], ""),
        "empty": ([("cf-mitigated", "")], ""),
        "not text": ([("cf-mitigated", b"\xff\0challenge")], ""),
        "endless": ([("cf-mitigated", "challenge," * MAX_HEADER)], ""),
        "none": ([("cf-ray", "1"), ("Server", "cloudflare")], ""),
    }
    with every_row() as checking:
        for name, (lines, sign) in rows.items():
            headers = Headers()
            for key, value in lines:
                headers.appendlist(key, value)
            with checking(name):
                assert wall_sign(headers) == sign


@pytest.mark.download
@pytest.mark.parametrize("value", ["allow", "hold"])
async def test_a_walls_answer_is_no_permission_if_the_project_says_so(
    sites: Sites, tmp_path: Path, value: str
) -> None:
    walls = {sites.add(robots=walled(*wall)): wall for wall in WALLS}
    fine = [sites.add(robots=one) for one in (403, RULES)]
    record, report = tmp_path / "record.jsonl", tmp_path / "report.html"
    settings = {"REP_DECISIONS": record, "REP_REPORT": report, "REP_CHALLENGE": value}
    start = [site.url("/x") for site in (*walls, *fine)]
    result = await crawl(start, {**ONE_ATTEMPT, **settings})
    result.assert_clean()
    is_held = value == "hold"
    every = map(json.loads, record.read_text("utf-8").splitlines())
    lines = {line["origin"]: line for line in every if line["verdict"] == "answer"}
    for site, (status, sign, _) in walls.items():
        line, error = lines[origin_of(site)], str(result.failure(site.url("/x")))
        outcome, kind, reason = "challenge", None, f"a bot wall answered ({sign})"
        if is_held:
            outcome, kind = "unreachable", "bot wall"
            reason = f"HTTP {status}, {sign}, and REP_CHALLENGE is 'hold'"
            assert reason in error
        assert (line["answer"]["outcome"], line["answer"]["kind"]) == (outcome, kind)
        assert (line["status"], line["reason"]) == (status, reason)
        told = f"for robots.txt of {origin_of(site)} (HTTP {status}, {sign}), so its rules are unknown"
        assert (told in result.log) is not is_held
    passed = [*fine, *([] if is_held else walls)]
    assert set(result.responses) == {site.url("/x") for site in passed}
    assert result.stat("rep/bot_walls") == len(walls)
    assert result.stat("rep/beyond/challenge") == (len(walls) if is_held else 0)
    summary = (
        "4 unreachable (4 bot wall)" if is_held else "4 with a bot wall in its place"
    )
    assert summary in result.log
    if not is_held:
        assert (
            "4 origins answered with a bot wall in place of robots.txt."
            in report.read_text()
        )


async def test_a_wall_that_is_unreachable_anyway_is_counted_and_no_choice(
    sites: Sites,
) -> None:
    site = sites.add(robots=walled(503, CLOUDFLARE, b"<title>404 Not Found</title>"))
    busy = sites.add(robots=walled(429, AWS))
    for value, soft, chosen in (
        ("allow", False, 0),
        ("hold", False, 0),
        ("hold", True, 1),
    ):
        settings = {**ONE_ATTEMPT, "REP_CHALLENGE": value, "REP_SOFT_404": soft}
        result = await crawl([site.url("/x"), busy.url("/x")], settings)
        result.assert_clean()
        assert f"HTTP 503, {CLOUDFLARE}" in str(result.failure(site.url("/x")))
        assert f"HTTP 429, {AWS}" in str(result.failure(busy.url("/x")))
        assert (result.stat("rep/bot_walls"), result.stat("rep/beyond/challenge")) == (
            2,
            chosen,
        )


@pytest.mark.loop
async def test_requests_wait_until_the_wall_is_gone(sites: Sites) -> None:
    walls = [sites.add(robots=in_turn(walled(*wall), RULES)) for wall in WALLS]
    start = [url for site in walls for url in (*urls(site, 2), site.url("/private"))]
    result = await crawl(start, {**HOLD, "REP_CHALLENGE": "hold"})
    result.assert_clean()
    assert set(result.responses) == {url for site in walls for url in urls(site, 2)}
    assert all(result.disallowed(site.url("/private")) for site in walls)
    assert result.stat("rep/held/unreachable") == 3 * len(walls)


async def test_redirects_to_a_wall_and_out_of_one(sites: Sites) -> None:
    """The last answer counts. A redirect that leads nowhere is one."""
    other = sites.add()
    other.set("/wall", walled(403, CLOUDFLARE))
    other.set("/rules", RULES)
    location = ("Location", other.url("/rules"))
    robots = {
        sites.add(robots=raw(head(302, [("Location", other.url("/wall"))]))): DOWN,
        sites.add(robots=raw(head(302, [location, signed(CLOUDFLARE)]))): NO,
        sites.add(robots=raw(head(302, [signed(CLOUDFLARE)]))): DOWN,
    }
    start = [site.url("/private") for site in robots]
    result = await crawl(start, {**ONE_ATTEMPT, "REP_CHALLENGE": "hold"})
    result.assert_clean()
    assert [type(result.failure(url)).__name__ for url in start] == list(
        robots.values()
    )


async def test_projects_that_share_a_storage_each_judge_for_themselves(
    sites: Sites, runs: Runs
) -> None:
    """Whoever takes a wall for no restrictions stores it, with its sign: also one that sent no page."""
    for status, sign, body in WALLS:
        site = sites.add(robots=walled(status, sign, body))
        for value, wanted in (("allow", OK), ("hold", DOWN), ("allow", OK)):
            found = await runs.next(site.url("/a"), site.url("/b"), REP_CHALLENGE=value)
            assert found == [wanted, wanted]
            if value == "allow":
                assert runs.kept(site).wall == sign
                assert runs.result.stat("rep/bot_walls") == 1
            runs.clock.now += DAY


async def test_a_copy_from_before_the_wall_goes_on_applying(
    sites: Sites, runs: Runs
) -> None:
    site = sites.add(robots=in_turn(RULES, walled(403, CLOUDFLARE)))
    for _ in range(2):
        found = await runs.next(
            site.url("/private"), site.url("/x"), REP_CHALLENGE="hold"
        )
        assert found == [NO, OK]
        runs.clock.now += 2 * DAY
    assert "so an older copy applies" in runs.result.log
    assert runs.kept(site).wall == ""


async def test_a_wall_that_is_confirmed_stays_one(sites: Sites, runs: Runs) -> None:
    """By a 304, for which nobody asked: here, of rules that carry the sign."""
    signed_rules = answer(RULES_BYTES, headers=[signed(AWS)])
    site = sites.add(robots=in_turn(signed_rules, raw(head(304))))
    for _ in range(2):
        assert await runs.next(site.url("/private")) == [NO]
        assert runs.kept(site).wall == AWS
        runs.clock.now += 2 * DAY
    assert await runs.next(site.url("/x"), REP_CHALLENGE="hold") == [DOWN]


def test_a_stored_sign_is_short() -> None:
    """Others may write to a shared storage."""
    assert rules(wall=CLOUDFLARE).check(rules().origin).wall == CLOUDFLARE
    with pytest.raises(UnreadableEntry, match="wall is too long"):
        rules(wall="x" * 101).check(rules().origin)


async def test_a_page_with_words_of_walls_and_a_rule_is_no_wall(sites: Sites) -> None:
    """What counts as one without a sign is what REP_CHALLENGE would hold."""
    page = b"<html><p>captcha</p>\nUser-agent: *\nDisallow: /private\n"
    site, wall = sites.add(robots=answer(page)), sites.add(robots=answer(PAGE))
    result = await crawl([site.url("/private"), wall.url("/x")], ONE_ATTEMPT)
    result.assert_clean()
    assert result.disallowed(site.url("/private"))
    assert result.stat("rep/bot_walls") == 1
    assert "1 with HTML in its place, 1 with a bot wall in its place" in result.log


async def test_a_locked_site_stays_closed_behind_a_wall(sites: Sites) -> None:
    site = sites.add(robots=walled(403, CLOUDFLARE))
    result = await crawl([site.url("/x")], {**ONE_ATTEMPT, "REP_FORBIDDEN": "disallow"})
    result.assert_clean()
    assert result.disallowed(site.url("/x"))
    assert "1 closed by REP_FORBIDDEN" in result.log
    assert "so its rules are unknown" in result.log
