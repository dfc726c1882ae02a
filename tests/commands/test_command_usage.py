"""`scrapy robots --usage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.commands import pages
from tests.helpers.behaviours import answer, redirect
from tests.helpers.robots_command import robots_crawls, robots_here
from tests.helpers.servers import Site, Sites

ROBOTS = """\
License: https://example.com/license.xml
User-agent: *
Disallow: /private
Content-Signal: search=yes, ai-train=no
Content-Usage: search=y
User-agent: OtherBot
Disallow:
"""
TDMREP = '[{"location": "/", "tdm-reservation": 1, "tdm-policy": "https://a.example/p"}]'


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(
        robots=ROBOTS,
        pages={
            "/tea": answer('<meta name="robots" content="noai">', type="text/html"),
            "/moved": redirect("/tea"),
            "/.well-known/tdmrep.json": TDMREP,
        },
    )


async def test_each_purpose_is_told_with_its_reason(tmp_path: Path, site: Site) -> None:
    done = await robots_crawls(tmp_path, "--usage", site.url("/moved"))
    signal = "robots.txt, line 4: Content-Signal: search=yes, ai-train=no"
    told = done.out.splitlines()
    assert told[:-1] == [
        site.url("/moved"),
        "  agent            ShopBot",
        "  answer           HTTP 200",
        f"  redirects to     {site.url('/tea')}",
        f"  train-ai         no: {signal}",
        "  train-ai-images  no: meta robots, line 1: noai",
        "  ai-input         not said",
        "  search           yes: robots.txt, line 5: Content-Usage: search=y",
        "  tdm              not said",
        "  license          https://example.com/license.xml",
    ]
    assert told[-1].startswith("  robots.txt       SHA-256 ")
    assert (done.status, done.err) == (1, "")
    assert site.count("/.well-known/tdmrep.json") == 0


async def test_json_is_that_of_the_record(tmp_path: Path, site: Site) -> None:
    settings: dict[str, Any] = {"REP_TDMREP": True}
    agents = ["--agent", "ShopBot", "--agent", "OtherBot"]
    paths = ["/tea", "/private"]
    done = await robots_crawls(
        tmp_path, "--usage", "--json", *map(site.url, paths), *agents, settings=settings
    )
    shop, other, private, _ = map(json.loads, done.out.splitlines())
    assert {name: shop[name] for name in ("train-ai", "search", "tdm", "tdm_policy")} == {
        "train-ai": "n",
        "search": "y",
        "tdm": "n",
        "tdm_policy": "https://a.example/p",
    }
    assert (shop["status"], shop["error"], shop["agent"]) == (200, None, "ShopBot")
    # Its group says nothing.
    assert [one["source"] for one in other["statements"]] == ["meta robots", "tdmrep.json"]
    assert (private["status"], private["train-ai"]) == (None, "n")
    assert "line 3: Disallow: /private" in private["error"]
    assert done.status == 1
    assert site.count("/.well-known/tdmrep.json") == 1
    assert site.count("/tea") == 1


def test_the_extra_is_named_where_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    done = robots_here(tmp_path, "--usage", "http://a.example/")
    assert (done.status, done.out) == (2, "")
    assert done.errors == ["scrapy robots: --usage needs http-sf: pip install 'scrapy-rep[usage]'"]
