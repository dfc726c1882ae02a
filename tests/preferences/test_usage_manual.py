"""docs/usage.md says what the code does: its examples are run, its tables compared."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import scrapy_rep
from scrapy_rep.preferences import PURPOSES, Usage
from scrapy_rep.preferences.middlewares import ACTIONS
from scrapy_rep.preferences.statements import MAX_LINES
from tests.helpers import docs
from tests.helpers.crawling import AGENT, ListSpider, crawl
from tests.helpers.log import lines
from tests.helpers.recorded import decisions
from tests.helpers.servers import Site, Sites

TEXT = docs.page("usage.md")

ROBOTS = """\
User-agent: *
Disallow: /private
Content-Usage: /archive/ train-ai=n
Content-Signal: search=yes
"""


def blocks(language: str, word: str = "") -> list[str]:
    return [block for block in docs.blocks(TEXT, language) if word in block]


def table(heading: str) -> list[list[str]]:
    [body] = re.findall(
        rf"^\| {heading} \|.*\n\|[ -|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE
    )
    return [row.strip("|").split(" | ") for row in body.splitlines()]


def like_the_manual(text: str, site: Site) -> str:
    """With what is different each time as the manual has it."""
    text = text.replace(site.url(""), "http://127.0.0.1:8765").replace(
        AGENT, "ExampleBot"
    )
    text = re.sub(r"\b[0-9a-f]{64}\b", "SHA", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "CRAWL", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)


@pytest.fixture
def site(sites: Sites) -> Site:
    return sites.add(robots=ROBOTS)


async def test_the_spider_of_the_manual(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = blocks("python", "class TextSpider")
    (tmp_path / "spider_of_the_manual.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("spider_of_the_manual")

    class ManualSpider(module.TextSpider, ListSpider):  # type: ignore[misc, name-defined]
        def recorded(self, request: Any) -> Any:
            return super().recorded(request)

    result = await crawl(
        ManualSpider, requests=[site.url("/archive/1"), site.url("/2")]
    )
    result.assert_clean()
    assert [item["url"] for item in result.spider.items] == [site.url("/2")]
    statement = "robots.txt, line 3: Content-Usage: /archive/ train-ai=n"
    assert f"INFO {statement} says {{'train-ai': 'n'}}" in result.log


async def test_what_a_crawl_tells(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    settings = {"REP_USAGE": {"train-ai": "drop-items"}, "REP_DECISIONS": str(path)}

    class ItemOfEachPage(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            yield {"url": response.url}

    result = await crawl(ItemOfEachPage, settings, requests=[site.url("/archive/1")])
    [told] = lines(result, "Dropping item from")
    assert [f"INFO: {like_the_manual(told, site)}\n"] == blocks(
        "text", "INFO: Dropping"
    )
    [example] = blocks("text", '"verdict": "usage"')
    one = next(one for one in decisions(path) if one["verdict"] == "usage")
    assert like_the_manual(json.dumps(one), site) == like_the_manual(
        example.strip(), site
    )


async def test_the_middlewares_by_hand(site: Site) -> None:
    [code] = blocks("python", "UsageMiddleware")
    settings: dict[str, Any] = {}
    exec(code, settings)  # noqa: S102 (our own manual)
    del settings["__builtins__"]
    settings |= {
        "ADDONS": {},
        "ROBOTSTXT_OBEY": True,
        "REP_USAGE": {"train-ai": "drop-requests"},
    }
    urls = [site.url("/archive/1"), site.url("/2")]
    result = await crawl(urls, settings)
    result.assert_clean()
    assert [*result.responses] == urls[1:]


def test_tables_name_what_there_is() -> None:
    assert [row[0].strip(" `") for row in table("Purpose")] == list(PURPOSES)
    assert [row[0].strip(' `"') for row in table("For a purpose")] == list(ACTIONS)
    named = re.findall(
        r"`(\w+)(?:\(.*?\))?`", " ".join(row[0] for row in table("Attribute"))
    )
    public = {name for name in dir(Usage) if not name.startswith("_")}
    assert {*named} == public == {field.name for field in fields(Usage)} | {
        "verdicts", "decisive", "as_dict"
    }  # fmt: skip
    assert f"the first {MAX_LINES} lines" in TEXT
    assert {"usage", "UsageMiddleware", "UsageItemMiddleware"} <= {*scrapy_rep.__all__}
