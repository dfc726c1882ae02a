"""REP_REPORT: what is on the page, and what becomes of text that others wrote. No browser here."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lxml import etree, html

import scrapy_rep.reporting.report
from scrapy_rep.reporting.report import duration, render
from scrapy_rep.reporting.report.data import ReportData
from tests.helpers.crawling import crawl
from tests.helpers.held import Record, assert_clean, origin_of
from tests.helpers.log import lines
from tests.helpers.pagesite import NOFOLLOW, LinkSpider, page
from tests.helpers.report_many import many
from tests.helpers.report_town import ReportTown
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


def parse(path: Path) -> Any:
    """The page, well formed."""
    text = path.read_bytes()
    page = html.document_fromstring(text.decode("utf-8"))
    errors = etree.HTMLParser().error_log
    assert len(errors) == 0
    return page


def texts(page: Any, selector: str) -> list[str]:
    return [" ".join(one.text_content().split()) for one in page.cssselect(selector)]


def rows(page: Any, table: str) -> list[list[str]]:
    return [texts(row, "th, td") for row in page.cssselect(f"#{table} tbody tr")]


async def test_the_figures_are_those_of_the_crawl(sites: Sites, tmp_path: Path) -> None:
    town, path = ReportTown(sites), tmp_path / "new" / "robots.html"
    result = await town.crawl(path)
    assert len(lines(result, f"The robots.txt report is in {path}")) == 1
    page = parse(path)
    figures = {one.getparent()[0].text: one.text for one in page.cssselect(".tiles dd")}
    waited = result.stats["rep/deferred"] - result.stat("rep/deferred/unreachable")
    assert figures == {
        "allowed": "45",
        "forbidden by a line": "34",
        "held": str(result.stats["rep/deferred"]),
        **({"of these, until the first answer": str(waited)} if waited else {}),
        "released": str(result.stats["rep/released"]),
        "given up": str(result.stats["rep/given_up"]),
        "dropped (robots.txt unreachable)": str(result.stat("rep/unreachable/dropped")),
    }
    assert len(result.responses) == 45
    assert texts(page, "section[aria-labelledby=outcomes] tbody tr") == [
        "with rules3", "without restrictions1", "unreachable1"
    ]  # fmt: skip
    rules, other, away = origin_of(town.rules), origin_of(town.other), origin_of(town.away)
    found = rows(page, "rules-table")
    assert [row[:5] for row in found] == [
        ["12", rules, "2", "Disallow: /private", "*"],
        ["10", other, "2", "Disallow: /*?session=", "testbot"],
        ["9", rules, "3", "Disallow: /search", "*"],
        ["3", away, "2", "Disallow: /private", "*"],
    ]
    assert found[1][5].startswith(f"{other}/?session=")
    spells = {row[0]: row for row in rows(page, "spells-table")}
    assert set(spells) == {away, town.down}
    assert spells[away][6] == "HTTP 503"
    assert spells[town.down][2].endswith(" or later")  # than when it was last asked for
    assert not spells[away][2].endswith(" or later")
    assert texts(page, "#sitemaps-table tbody tr") == ["found2"]
    origins = {row[0]: row for row in rows(page, "origins-table")}
    assert origins[rules][1:5] == ["with rules", "200", "1", "21"]
    assert origins[away][4] == "3"
    assert len(origins) == 5
    assert_clean(result)


async def test_everything_is_in_the_page(sites: Sites, tmp_path: Path) -> None:
    """Nothing is loaded; what has a URL in it is text."""
    path = tmp_path / "robots.html"
    await ReportTown(sites).crawl(path)
    page = parse(path)
    assert page.cssselect("link, img, iframe, object, embed, use, image, a, base, form") == []
    for one in page.iter():
        assert not {"src", "href", "srcset", "action", "style", "onclick"} & set(one.attrib)
    assert [len(page.cssselect(name)) for name in ("style", "script", "svg")] == [1, 1, 3]
    [policy] = page.cssselect("meta[http-equiv]")
    assert policy.get("content").startswith("default-src 'none'; style-src 'sha256-")


async def test_what_is_described_in_words(sites: Sites, tmp_path: Path) -> None:
    """For who does not see the page: tables have captions and heads, charts have texts."""
    path = tmp_path / "robots.html"
    await ReportTown(sites).crawl(path)
    page = parse(path)
    assert page.get("lang") == "en"
    for table in page.cssselect("table"):
        assert table.cssselect("caption")[0].text_content().strip()
        assert all(head.get("scope") == "col" for head in table.cssselect("thead th"))
        assert all(len(row.cssselect("th[scope=row]")) == 1 for row in table.cssselect("tbody tr"))
    for chart in page.cssselect("svg"):
        assert chart.get("role") == "img"
        assert chart.get("aria-label")
    for section in page.cssselect("section, .scroll"):
        label = section.get("aria-label") or section.get("aria-labelledby")
        assert label
    for element in page.cssselect("input"):
        assert element.getparent().tag == "label"


async def test_again_it_replaces_the_old_one(sites: Sites, tmp_path: Path) -> None:
    path = tmp_path / "robots.html"
    path.write_text("x" * 1_000_000)
    await crawl(sites.add(robots=404).url("/"), {"REP_REPORT": str(path)})
    assert texts(parse(path), "h1") == ["robots.txt in the crawl of list"]
    assert path.stat().st_size < 100_000


async def test_the_report_of_an_empty_crawl_says_so(tmp_path: Path) -> None:
    path = tmp_path / "robots.html"
    result = await crawl([], {"REP_REPORT": str(path)})
    assert "No robots.txt was requested." in texts(parse(path), "p")
    assert_clean(result)


@pytest.mark.usefixtures("in_time")
async def test_the_report_of_a_dry_run_says_so(sites: Sites, tmp_path: Path) -> None:
    path = tmp_path / "robots.html"
    await ReportTown(sites).crawl(path, REP_DRY_RUN=True)
    page = parse(path)
    assert texts(page, ".banner")[0].startswith("This was a dry run")
    assert int(texts(page, "#forbidden")[0]) >= 31


async def test_of_a_crawl_that_was_stopped(sites: Sites, tmp_path: Path) -> None:
    """With what is still held then."""
    path = tmp_path / "robots.html"
    never = {"REP_RETRY_DELAY": 1000, "REP_RETRY_MAX_DELAY": 1000}
    record = Record(on_deferred=lambda _, count: record.close() if count == 3 else None)
    result = await crawl(
        [sites.add(robots=503).url(f"/{n}") for n in range(3)],
        {"REP_UNREACHABLE": "defer", "REP_REPORT": str(path), **never,
         "JOBDIR": str(tmp_path / "job")},
        signal_handlers=record.handlers,
    )  # fmt: skip
    assert result.reason == "enough"
    page = parse(path)
    assert texts(page, "#kept") == ["3"]
    assert "ended: enough" in texts(page, "header p")[0]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "</table></style>{{ 7 * 7 }}{% raw %}&amp;&#39;",
    "\u202e\u2028\x00\x07\ufffe\ud800",
]


def test_hostile_text_is_text(tmp_path: Path) -> None:
    """Every text of the page that is from elsewhere, at once."""
    for hostile in HOSTILE:
        path = tmp_path / "robots.html"
        text = hostile.replace("\ud800", "")  # neither lines nor host names can have that
        path.write_bytes(render(many(3, rule=text, url=hostile, error=hostile, origin=text)))
        page = parse(path)
        assert [len(page.cssselect(name)) for name in ("script", "img", "table")] == [1, 0, 5]
        assert "49" not in texts(page, "#rules-table")[0]
        if "\x00" not in hostile:
            assert f"Disallow: /{hostile}" in page.cssselect("#rules-table code")[0].text_content()


def test_no_more_than_a_browser_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is in the sums."""
    monkeypatch.setattr(scrapy_rep.reporting.report.data, "MAX_ORIGINS", 20)
    monkeypatch.setattr(scrapy_rep.reporting.report.data, "MAX_RULES", 10)
    monkeypatch.setattr(scrapy_rep.reporting.report.data, "MAX_SPELLS", 3)
    data = many(50)
    assert (len(data.origins), len(data.rules), len(data.spells)) == (20, 10, 3)
    page = html.document_fromstring(render(data).decode())
    assert [len(rows(page, f"{name}-table")) for name in ("origins", "rules", "spells")] == [
        20, 10, 3
    ]  # fmt: skip
    notes = texts(page, ".note")
    assert notes[0].startswith("3 of 5 periods")
    assert notes[1].startswith("10 of 50 lines")
    assert notes[2].startswith("20 of 50 origins")
    assert sum(data.outcomes.values()) == 50
    # Those of which most was refused come first.
    assert data.origins[0].forbidden == max(one.forbidden for one in data.origins)


async def test_a_missing_library_costs_the_report_alone(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so at the start."""
    monkeypatch.setattr(
        scrapy_rep.reporting.report,
        "find_spec",
        lambda name: None if name == "pygal" else find_spec(name),
    )
    site = sites.add()
    result = await crawl(site.url("/"), {"REP_REPORT": str(tmp_path / "robots.html")})
    assert set(result.responses) == {site.url("/")}
    [warning] = [one.getMessage() for one in result.records if one.levelname == "WARNING"]
    assert warning == (
        'REP_REPORT needs pygal, so there will be no report: pip install "scrapy-rep[report]"'
    )
    assert not (tmp_path / "robots.html").exists()
    result.assert_clean()


async def test_without_a_report_its_libraries_are_not_needed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("pygal", "jinja2") or name.startswith(
            "scrapy_rep.reporting.report"
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygal", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = await crawl(sites.add().url("/"))
    assert_clean(result)


async def test_a_report_that_cannot_be_written_is_an_error(sites: Sites, tmp_path: Path) -> None:
    result = await crawl(sites.add().url("/"), {"REP_REPORT": str(tmp_path)})
    [error] = lines(result, level="ERROR")
    assert error.startswith(f"REP_REPORT: can't write the report to {tmp_path}: IsADirectory")
    result.assert_clean()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (59.99, "60.0 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"),
     (3600, "1 h 0 min"), (90000, "1 d 1 h"), (30 * 86400, "30 d 0 h")],
)  # fmt: skip
def test_a_duration_is_given_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_test_data_is_gathered_as_in_a_crawl() -> None:
    """`many` makes data in the way that a crawl does."""
    assert many.__globals__["ReportData"] is ReportData


def test_sitemap_counts_are_in_the_order_of_events() -> None:
    """Whatever is counted of them, in the order in which it happens."""
    assert many(1).sitemaps == [
        ("found", 12), ("urls", 900), ("rejected, of another host", 3)
    ]  # fmt: skip


async def test_what_pages_say_is_on_the_page(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(pages={"/": page('<a href="/x">' + NOFOLLOW, "noindex")})
    for number, noindex in enumerate(["drop", "count", False]):
        path = tmp_path / f"{number}.html"
        settings = {
            "REP_REPORT": str(path),
            "REP_NOFOLLOW": noindex and "page",
            "REP_NOINDEX": noindex,
        }
        assert_clean(await crawl(LinkSpider, settings, requests=[site.url("/")]))
        expected = [
            ["requests from pages that say nofollow", "1"],
            ["items from pages that say noindex", "1"],
        ]
        assert rows(parse(path), "pages-table") == (expected if noindex else [])
        dropped = {"drop": ["2 dropped"], "count": ["1 dropped"], False: []}[noindex]
        captions = texts(parse(path), "#pages-table caption")
        assert [text.partition("; ")[2] for text in captions] == dropped
