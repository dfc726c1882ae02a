"""`scrapy robots --agents-known`, and its list of crawlers."""

from __future__ import annotations

import csv
import io
import re
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

from scrapy_rep.inspection.crawlers import AS_OF, CRAWLER_PURPOSES, KNOWN
from scrapy_rep.protocol.syntax import leading_token
from tests.docs.examples import section
from tests.helpers.docs import page
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.servers import Sites

RULES = "User-agent: *\nDisallow: /cart\n\nUser-agent: Googlebot\nAllow: /\n\nUser-agent: GPTBot\nDisallow: /\n"


def test_each_known_crawler_is_asked_about_by_name(folder: Path) -> None:
    """For `/`, if there is no URL; with operator and purpose, and the group that it obeys."""
    asked = ("--file", "r.txt", "--agents-known")
    done = robots_here(folder, *asked)
    *lines, as_of, total = done.out.splitlines()
    assert [line.split()[1] for line in lines] == [one.name for one in KNOWN]
    assert f"crawlers known on {AS_OF}" in as_of
    assert total == f"# {len(KNOWN) - 1} allowed, 1 disallowed"
    [gptbot] = [line for line in lines if " GPTBot " in line]
    assert re.split(" {2,}", gptbot) == [
        "disallowed", "GPTBot", "OpenAI", "AI training", "/", "r.txt:8: Disallow: / (group GPTBot)"
    ]  # fmt: skip
    assert lines[-1].rindex("Google ") == gptbot.index("OpenAI"), "a table"
    of = {
        one["agent"]: one for one in robots_here(folder, *asked, "/cart", "--json").json
    }
    # These obey Googlebot's group where none names them.
    for agent in ("Googlebot-Image,Googlebot", "Applebot,Googlebot"):
        assert (of[agent]["group"], of[agent]["allowed"]) == ("Googlebot", True)
    assert (of["Google-Extended"]["group"], of["Google-Extended"]["allowed"]) == (
        "*",
        False,
    )
    assert of["ClaudeBot"]["operator"] == "Anthropic"
    assert "8896518" in of["ClaudeBot"]["page"]
    assert of["ClaudeBot"]["note"] is None
    assert of["CCBot"]["note"] == "an archive open to all"
    assert "may bypass robots.txt" in robots_here(folder, *asked).out


def test_other_agents_come_first_and_those_of_the_file_last(folder: Path) -> None:
    with (folder / "r.txt").open("a") as file:
        file.write("User-agent: Mine\nDisallow:\n")
    asked = (
        "--file",
        "r.txt",
        "/cart",
        "--agents-known",
        "--agents-of-file",
        "--agent=Other",
    )
    agents = [one["agent"] for one in robots_here(folder, *asked, "--json").json]
    assert agents == ["Other", *(",".join(one.chain) for one in KNOWN), "Mine", "*"]
    rows = list(csv.DictReader(io.StringIO(robots_here(folder, *asked, "--csv").out)))
    assert [row["purpose"] for row in rows] == [
        "",
        *(one.purpose for one in KNOWN),
        "",
        "",
    ]
    assert rows[1]["page"] == KNOWN[0].page


def test_a_comparison_asks_about_known_crawlers(folder: Path) -> None:
    (folder / "n.txt").write_text(RULES.replace("GPTBot", "ClaudeBot"))
    done = robots_here(folder, "--compare", "r.txt", "n.txt", "/", "--agents-known")
    assert done.out.splitlines()[-3:] == [
        "# GPTBot: 1 URL disallowed -> allowed",
        "# ClaudeBot: 1 URL allowed -> disallowed",
        "# 2 verdicts changed",
    ]


async def test_a_site_is_asked_about_known_crawlers(
    sites: Sites, tmp_path: Path
) -> None:
    """Without a warning of the project's own agent, which isn't asked about."""
    site = sites.add(robots=RULES)
    done = await robots_crawls(
        tmp_path, site.url("/"), "--agents-known", agent="Mozilla/5.0"
    )
    assert (done.status, done.err) == (1, "")
    assert done.out.count("\n") == 1 + len(KNOWN) + 2
    assert site.count("/robots.txt") == 1


def test_the_list_names_documented_crawlers_once() -> None:
    assert date.fromisoformat(AS_OF)
    names = [one.name for one in KNOWN]
    assert len({*names}) == len(names) > 25
    for one in KNOWN:
        assert all(token == leading_token(token) for token in one.chain)
        assert one.purpose in CRAWLER_PURPOSES
        assert urlsplit(one.page).scheme == "https"
    purposes = [CRAWLER_PURPOSES.index(one.purpose) for one in KNOWN]
    assert purposes == sorted(purposes), "those of a purpose stand together"


def test_the_manual_names_those_that_obey_another_crawlers_group() -> None:
    """The list itself is in an example of check.md, which tests/docs run."""
    text = section(page("command.md"), "Known crawlers")
    sentence = text.partition("obey the group for `Googlebot`")
    google = re.findall("`(.+?)`", sentence[0].rpartition("\n\n")[2])
    others = re.findall("`(.+?)` *\nthen obeys that for `(.+?)`", sentence[2])
    named = {(name, "Googlebot") for name in google} | {*others}
    assert named == {one.chain for one in KNOWN if len(one.chain) > 1}
