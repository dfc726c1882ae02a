"""REP_REPORT: what is on the page, and what becomes of text that others wrote. No browser here."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from lxml import etree, html

import scrapy_rep.reporting.report
from scrapy_rep.reporting.report import building, duration, render, share
from scrapy_rep.reporting.report.data import ReportData
from tests.helpers.crawling import crawl
from tests.helpers.held import Record, assert_clean, origin_of
from tests.helpers.log import lines
from tests.helpers.pagesite import NOFOLLOW, LinkSpider, page
from tests.helpers.report import ReportTown, answer, data_of, ended, line, many, started
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


def parse(source: Path | bytes) -> Any:
    """The page, well formed."""
    text = source if isinstance(source, bytes) else source.read_bytes()
    page = html.document_fromstring(text.decode("utf-8"))
    assert len(etree.HTMLParser().error_log) == 0
    return page


def texts(page: Any, selector: str) -> list[str]:
    return [" ".join(one.text_content().split()) for one in page.cssselect(selector)]


def rows(page: Any, table: str) -> list[list[str]]:
    return [texts(row, "th, td") for row in page.cssselect(f"#{table}-table tbody:last-child tr")]


def numbers(page: Any) -> dict[str, str]:
    return {
        one.getparent()[0].text: one.text.strip().replace(",", "")
        for one in page.cssselect(".numbers dd")
    }


async def test_the_figures_are_those_of_the_crawl(sites: Sites, tmp_path: Path) -> None:
    town, path = ReportTown(sites), tmp_path / "new" / "robots.html"
    result = await town.crawl(path)
    assert len(lines(result, f"The robots.txt report is in {path}")) == 1
    page = parse(path)
    found = numbers(page)
    held = result.stat("rep/deferred/unreachable")
    assert (found["allowed"], found["forbidden"], found["held"]) == ("45", "34", str(held))
    assert found["given up"] == str(result.stats["rep/given_up"])
    assert found["fetches of robots.txt"] == str(result.stats["robotstxt/request_count"])
    assert len(result.responses) == 45
    assert [(row[0].split()[0], row[2]) for row in rows(page, "outcomes")] == [
        ("with", "3"), ("missing", "1"), ("unreachable", "1")
    ]  # fmt: skip
    rules, away = origin_of(town.rules), origin_of(town.away)
    assert texts(page, ".rule > summary") == [
        "Disallow: /private group * 15 requests on 2 origins",
        "Disallow: /*?session= group testbot 10 requests on 1 origin",
        "Disallow: /search group * 9 requests on 1 origin",
    ]
    origins = {row[0]: row for row in rows(page, "origins")}
    assert origins[rules][1:3] == ["with rules", "200"]
    assert origins[rules][4:8] == ["1", "10", "21", "68 %"]
    assert len(origins) == 5
    unreachable = {row[0]: row for row in rows(page, "unreachable") if row[7] != "first answer"}
    assert set(unreachable) == {away, town.down}
    assert (unreachable[away][4], unreachable[away][7]) == ("3", "answered")
    assert unreachable[away][8] == "HTTP 503"
    assert unreachable[town.down][7] == "given up"
    assert_clean(result)


async def test_a_rule_opens_to_the_line_in_each_robots_txt(sites: Sites, tmp_path: Path) -> None:
    """With a link to the origin, and to the file."""
    town, path = ReportTown(sites), tmp_path / "robots.html"
    await town.crawl(path)
    [private, *_] = parse(path).cssselect(".rule")
    first = origin_of(town.rules)
    one = private.cssselect("details details")[0]
    assert texts(one, "summary") == [f"{first} line 2, 12 requests"]
    assert texts(one, "mark") == ["2 Disallow: /private"]
    assert "3 Disallow: /search" in texts(one, "pre")[0]
    assert [link.get("href") for link in one.cssselect("a")] == [first, f"{first}/robots.txt"]


async def test_nothing_is_loaded_and_links_lead_to_sites(sites: Sites, tmp_path: Path) -> None:
    path = tmp_path / "robots.html"
    await ReportTown(sites).crawl(path)
    page = parse(path)
    assert page.cssselect("link, img, iframe, object, embed, image, base, form") == []
    for one in page.iter(etree.Element):
        assert not {"src", "srcset", "action", "style", "onclick"} & set(one.attrib)
        assert one.get("href", "#").startswith(("#", "http://"))
    assert [len(page.cssselect(name)) for name in ("style", "script")] == [1, 1]
    [policy] = page.cssselect("meta[http-equiv]")
    assert policy.get("content").startswith("default-src 'none'; style-src 'sha256-")


def test_what_needs_a_look_comes_first() -> None:
    """In sentences, with a link to where there is more."""
    page = parse(render(many(50)))
    assert texts(page, "main section h2")[0] == "Needs a look"
    found = {one.text_content(): one for one in page.cssselect(".findings li")}
    [text] = [one for one in found if "HTML page" in one]
    assert "3 origins" in text
    [link] = found[text].cssselect("p a[data-filter]")
    assert (link.get("href"), link.get("data-filter")) == ("#origins", "HTML page in its place")
    for link in page.cssselect("a[href^='#']"):
        assert page.cssselect(link.get("href")), link.get("href")
    quiet = parse(render(data_of(started(), answer("rules", 1, "http://a.example"), ended(2))))
    assert texts(quiet, "#look p")[0].startswith("Nothing does")


def test_crawls_are_shown_side_by_side() -> None:
    """With what changed in each robots.txt between them."""
    bodies = {"a" * 64: b"User-agent: *\nDisallow: /old\n", "b" * 64: b"User-agent: *\nAllow: /\n"}

    def one(crawl: str, sha: str, at: float) -> bytes:
        site = "http://a.example"
        about = {"sha256": sha, "crawl": crawl, "status": 200}
        return (
            started(crawl=crawl) + answer("rules", at, site, **about)
            + line("allowed_count", at, site, count=7, crawl=crawl)
            + line("crawl_ended", at + 1, crawl=crawl, reason="finished", counts={})
        )  # fmt: skip

    record = one("a" * 12, "a" * 64, 1), one("b" * 12, "b" * 64, 100)
    data = ReportData.read([BytesIO(text) for text in record], lambda _, sha: bodies.get(sha))
    page = parse(render(data))
    assert ["allowed", "7", "7"] in rows(page, "crawls")
    assert texts(page, "#crawls del") == ["- Disallow: /old"]
    assert texts(page, "#crawls ins") == ["+ Allow: /"]
    assert texts(page, "#crawls summary .count") == ["+1 −1"]


def test_what_is_described_in_words() -> None:
    """For who does not see the page: tables have captions and heads; what is drawn is said too."""
    page = parse(render(many(60)))
    assert page.get("lang") == "en"
    for table in page.cssselect("table"):
        assert table.cssselect("caption")[0].text_content().strip()
        assert all(head.get("scope") == "col" for head in table.cssselect("thead th"))
        assert all(len(row.cssselect("th[scope=row]")) == 1 for row in table.cssselect("tbody tr"))
    assert all(one.get("aria-hidden") for one in page.cssselect("svg"))
    labels = [one.get("aria-label") for one in page.cssselect("[role=region]")]
    assert len(labels) == len(set(labels)) >= 3


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
    assert int(numbers(page)["forbidden"]) >= 31


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
    assert numbers(page)["kept for the next run"] == "3"
    assert "ended: enough" in texts(page, "header p")[0]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "</table></style>{{ 7 * 7 }}{% raw %}&amp;&#39;",
    "\u202e\u2028\x00\x07\ufffe\ud800",
]


def test_hostile_text_is_text() -> None:
    """Every text of the page that is from elsewhere, at once."""
    for hostile in HOSTILE:
        text = hostile.replace("\ud800", "")  # neither lines nor host names can have that
        page = parse(render(many(12, rule=text, url=hostile, error=hostile, origin=text)))
        assert [len(page.cssselect(name)) for name in ("script", "img", "table")] == [1, 0, 5]
        assert "49" not in texts(page, ".rule code")[0]
        if "\x00" not in hostile:
            assert texts(page, ".rule code")[0] == f"Disallow: /{hostile}"


def test_only_web_addresses_are_links() -> None:
    """A record may be anybody's."""
    for name in ("javascript:alert(1)", "data:text/html,x", "//x.example", "HTTP://x.example"):
        page = parse(render(data_of(started(), answer("html", 1, name), ended(2))))
        assert rows(page, "origins")[0][0] == name
        assert all(one.get("href").startswith("#") for one in page.cssselect("a"))


def test_no_more_than_a_browser_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is in the sums."""
    monkeypatch.setattr(building, "MAX_ORIGINS", 20)
    monkeypatch.setattr(building, "MAX_RULES", 10)
    page = parse(render(many(50)))
    assert len(rows(page, "origins")) == 20
    notes = texts(page, "p.note")
    assert any(note.startswith("20 of 50 origins") for note in notes)
    assert any(note.startswith("10 of 50 rules") for note in notes)
    assert texts(page, "#outcomes-table caption") == ["How 50 origins answered"]


@pytest.mark.parametrize(("count", "kilobytes"), [(100, 150), (1500, 900)])
def test_a_page_stays_small(count: int, kilobytes: int) -> None:
    """As mail, and in a browser."""
    assert len(render(many(count))) < kilobytes * 1000


async def test_a_missing_library_costs_the_report_alone(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so at the start."""
    monkeypatch.setattr(
        scrapy_rep.reporting.report,
        "find_spec",
        lambda name: None if name == "jinja2" else find_spec(name),
    )
    site = sites.add()
    result = await crawl(site.url("/"), {"REP_REPORT": str(tmp_path / "robots.html")})
    assert set(result.responses) == {site.url("/")}
    [warning] = [one.getMessage() for one in result.records if one.levelname == "WARNING"]
    assert warning == (
        'REP_REPORT needs jinja2, so there will be no report: pip install "scrapy-rep[report]"'
    )
    assert not (tmp_path / "robots.html").exists()
    result.assert_clean()


async def test_without_a_report_its_library_is_not_needed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("jinja2", "scrapy_rep.reporting.report")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert_clean(await crawl(sites.add().url("/")))


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


@pytest.mark.parametrize(
    ("part", "words"),
    [(0, "0 %"), (0.0004, "< 0.1 %"), (0.0046, "0.5 %"), (0.31, "31 %"), (1, "100 %")],
)
def test_a_small_share_is_not_zero(part: float, words: str) -> None:
    assert share(part) == words


def test_a_sitemap_is_a_row() -> None:
    """What was taken, what was rejected and why, or why it could not be read."""
    found = rows(parse(render(many(3))), "sitemaps")
    assert found[0][1:3] == ["index", "http://site2.example/a.xml"]
    assert found[0][8] == "HTTP 404"
    assert found[1][3:8] == ["urlset", "900", "897", "3", "3 already known"]


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
        found = {row[0]: row[2:4] for row in rows(parse(path), "pages")}
        dropped = "1" if noindex == "drop" else "0"
        assert found == ({
            "requests from pages that say nofollow": ["1", "1"],
            "items from pages that say noindex": ["1", dropped],
        } if noindex else {})  # fmt: skip
