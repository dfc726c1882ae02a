"""REP_REPORT: what is on the page, and what becomes of text that others wrote. No browser here."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from lxml import etree, html

from scrapy_rep.origins.policy import UNKNOWN_YET
from scrapy_rep.reporting.record import ANSWERS
from scrapy_rep.reporting.report import MANUAL, ReportData, reading, render
from tests.helpers.behaviours import in_turn, redirect
from tests.helpers.crawling import crawl
from tests.helpers.held import HOLD, assert_clean, origin_of
from tests.helpers.log import lines, summary
from tests.helpers.servers import Sites
from tests.reporting.report.records import answer, data_of, ended, line, many, started

pytestmark = pytest.mark.slow

A, B, C = "http://a.example", "http://b.example", "http://c.example"
RULES = "User-agent: *\nDisallow: /private\nDisallow: /search\nSitemap: /map.xml\n"


def parse(source: Path | bytes) -> Any:
    """The page, well formed."""
    text = source if isinstance(source, bytes) else source.read_bytes()
    parser = html.HTMLParser()
    page = html.document_fromstring(text.decode("utf-8"), parser=parser)
    assert {one.type_name for one in parser.error_log} <= {"HTML_UNKNOWN_TAG"}
    return page


def texts(page: Any, selector: str) -> list[str]:
    return [" ".join(one.text_content().split()) for one in page.cssselect(selector)]


def rows(page: Any, table: str) -> list[list[str]]:
    return [
        texts(row, "th, td")
        for row in page.cssselect(f"#{table}-table tbody:last-child tr")
    ]


def numbers(page: Any) -> dict[str, str]:
    return {
        one.getparent()[0].text: one.text.strip().replace(",", "")
        for one in page.cssselect(".numbers dd")
    }


async def test_the_figures_are_those_of_the_crawl(sites: Sites, tmp_path: Path) -> None:
    """Of sites with rules, without a robots.txt, away for a while, and down."""
    rules, missing, down = (
        sites.add(robots=RULES),
        sites.add(robots=404),
        sites.refused(),
    )
    other = sites.add(robots="User-agent: testbot\nDisallow: /*?session=\n")
    away = sites.add(robots=in_turn(503, 503, 503, RULES))
    counts = {
        rules.url("/private/{}"): 12,
        rules.url("/search?q={}"): 9,
        rules.url("/{}"): 10,
        other.url("/?session={}"): 10,
        missing.url("/{}"): 5,
        f"{down}/{{}}": 4,
        away.url("/{}"): 30,
        away.url("/private/{}"): 3,
    }
    urls = [
        url.format(number) for url, count in counts.items() for number in range(count)
    ]
    path = tmp_path / "new" / "robots.html"
    record = tmp_path / "d.jsonl"
    settings = {"REP_REPORT": str(path), "REP_DECISIONS": str(record)}
    result = await crawl(urls, {**HOLD, **settings})
    assert len(lines(result, f"The robots.txt report is in {path}")) == 1
    page = parse(path)
    found = numbers(page)
    later = parse(render(ReportData.read([record])))  # made of its record
    assert numbers(later) == found
    for table in ("origins", "outcomes", "unreachable"):
        assert rows(later, table) == rows(page, table) != []
    held = result.stat("rep/held/unreachable")
    assert (found["allowed"], found["forbidden"], found["held"]) == (
        "45",
        "34",
        str(held),
    )
    assert found["given up"] == str(result.stats["rep/given_up"])
    assert found["fetches of robots.txt"] == str(
        result.stats["robotstxt/request_count"]
    )
    assert texts(page, ".rule > summary") == [
        "Disallow: /private group * 15 requests on 2 origins",
        "Disallow: /*?session= group testbot 10 requests on 1 origin",
        "Disallow: /search group * 9 requests on 1 origin",
    ]
    first = page.cssselect(".rule")[0]
    assert texts(first, "mark") == ["2 Disallow: /private"] * 2
    assert all("3 Disallow: /search" in text for text in texts(first, "pre"))
    links = [link.get("href") for link in first.cssselect("a")]
    assert links[:2] == [origin_of(rules), rules.url("/robots.txt")]
    origins = {row[0]: row for row in rows(page, "origins")}
    about = f"with rules|200|{len(RULES)}|1|10|21|68 %"
    assert "|".join(origins[origin_of(rules)][1:8]) == about
    unreachable = {row[0]: row for row in rows(page, "unreachable")}
    assert {name: row[7] for name, row in unreachable.items()} == {
        origin_of(away): "answered", down: "given up"
    }  # fmt: skip
    assert unreachable[origin_of(away)][4] == "3"  # fetches
    assert_clean(result)


def test_nothing_is_loaded_and_links_lead_to_sites() -> None:
    page = parse(render(many(12)))
    assert page.cssselect("link, img, iframe, object, embed, image, base, form") == []
    for one in page.iter(etree.Element):
        assert not {"src", "srcset", "action", "style", "onclick"} & set(one.attrib)
        assert (
            one.get("href", "#").startswith(("#", "http://"))
            or one.get("href") == MANUAL
        )
    assert [one.get("href") for one in page.cssselect("footer a")] == [MANUAL]
    [policy] = page.cssselect("meta[http-equiv]")
    assert policy.get("content").startswith("default-src 'none'; style-src 'sha256-")


def test_what_needs_a_look_comes_first() -> None:
    """In sentences, with a link to where there is more."""
    page = parse(render(many(50)))
    assert texts(page, "main section h2")[0] == "Needs a look"
    [html] = [
        one
        for one in page.cssselect(".findings li")
        if "HTML page" in one.text_content()
    ]
    assert "3 origins" in html.text_content()
    [link] = html.cssselect("p a[data-filter]")
    assert (link.get("href"), link.get("data-filter")) == (
        "#origins",
        "with HTML in its place",
    )
    for link in page.cssselect("a[href^='#']"):
        assert page.cssselect(link.get("href")), link.get("href")


def page_of(*record: bytes) -> Any:
    return parse(render(data_of(*record)))


def refused(origin: str) -> bytes:
    about = {"rule": "Disallow: /", "line": 3, "group": "*"}
    return line("disallowed", 2, origin, url=f"{origin}/x", **about)


def test_what_needs_a_look_is_said_in_sentences() -> None:
    starts = {
        "refused": 3,
        "passed": False,
        "url": f"{B}/y",
        "why": "line 3",
        "command": "scrapy",
    }
    listed = {"found": "listed", "by": f"{A}/robots.txt"}
    page = page_of(
        started(),
        answer("rules", 1, A),
        refused(A),
        *[answer("rules", 1, B), refused(B)],
        line("allowed_count", 5, B, count=1),
        *[
            answer(kind, 1, f"http://{kind}.example")
            for kind in ("html", "challenge", "redirected")
        ],
        answer("unreachable", 1, C, reason="HTTP 503"),
        answer("none", 1, "http://none.example"),
        line(
            "sitemap", 3, A, url=f"{A}/s.xml", sitemap={**listed, "failed": "HTTP 404"}
        ),
        line(
            "sitemap",
            3,
            A,
            url=f"{A}/t.xml",
            sitemap={**listed, "entries": 3, "taken": 0},
        ),
        line("noindex", 4, A, url=f"{A}/1", reason="meta robots: noindex"),
        line("usage_item", 4, A, url=f"{A}/1", reason="train-ai: robots.txt, line 3"),
        line("changed", 5, A, change={"added": ["Disallow: /"], "lines_added": 1}),
        ended(9, start_requests=starts, page_dropped=1, usage_dropped=1),
    )
    first = f"and none got through. The first was {B}/y: line 3. See rules"
    assert texts(page, ".findings li > p:first-child") == [
        "error 1 origin unreachable at the end (1 HTTP 503). See origins",
        f"error robots.txt refused 3 start requests, {first}",
        "warning 1 origin answered with a bot wall in place of robots.txt. See origins",
        "warning 1 origin answered with an HTML page in place of robots.txt. See origins",
        "warning 1 origin redirected in a loop, too many times, or without a target. See origins",
        (
            "warning 1 origin closed to this crawler. 1 sitemap could not be read. The first: HTTP 404. "
            "robots.txt files that changed in the crawl: 1. See rules, sitemaps, changes"
        ),
        "note 1 origin without an answer. See origins",
        "note Items and requests dropped because of page rules: 1. See pages",
        "note Items and requests dropped because of usage preferences: 1. See pages",
    ]
    assert texts(page, ".findings code") == ["scrapy"]
    assert [row[0] for row in rows(page, "outcomes")] == [
        *("with rules", "without restrictions", "redirected nowhere"),
        *("with HTML in its place", "with a bot wall in its place"),
        *("unreachable 1 HTTP 503", "without an answer"),
    ]


def start_requests(
    refused: int, unreachable: int, url: str, *, passed: bool
) -> dict[str, Any]:
    return {"refused": refused, "unreachable": unreachable, "passed": passed, "url": url,
            "why": "why", "command": "scrapy robots"}  # fmt: skip


def findings(*record: bytes) -> list[str]:
    return texts(page_of(*record), ".findings li > p:first-child")


def test_findings_about_the_same_origins_are_one() -> None:
    """The most serious leads; each section that says more is named, and none that says nothing."""
    gone = answer("unreachable", 1, A, reason="HTTP 503")
    held = [line("held", 1, A, url=f"{A}/x", reason="HTTP 503")]
    held.append(line("given_up", 2, A, url=f"{A}/x", reason="HTTP 503"))
    starts = start_requests(1, 1, f"{A}/x", passed=True)
    failed = "1 start request failed, robots.txt being unreachable; others got through"
    said = (
        "1 origin unreachable at the end (1 HTTP 503). 1 request given up or dropped. "
    )
    said += f"{failed}. The first was {A}/x: why."
    end = ended(9, start_requests=starts, given_up=1)
    assert findings(started(), gone, *held, end) == [
        f"error {said} See origins, given up, unreachable"
    ]
    # An origin that answered in the end is another.
    back = answer("rules", 3, A, status=200)
    assert findings(started(), gone, *held, back, end) == [
        (
            "warning 1 request given up or dropped. "
            f"{failed}. The first was {A}/x: why. See given up, unreachable"
        )
    ]
    starts = start_requests(1, 0, f"{B}/x", passed=False)
    record = (
        started(),
        answer("rules", 1, B),
        refused(B),
        ended(9, start_requests=starts),
    )
    assert findings(*record) == [
        (
            f"error robots.txt refused 1 start request, and none got through. The first was {B}/x: why. "
            "1 origin closed to this crawler. See rules"
        )
    ]


def test_start_requests_that_robots_txt_did_not_refuse_lead_elsewhere() -> None:
    starts = start_requests(3, 2, f"{C}/x", passed=False)
    [said] = findings(started(), answer("rules", 1, A), ended(9, start_requests=starts))
    assert said.startswith(
        "error robots.txt refused 1 start request and 2 start requests failed, robots.txt being "
        "unreachable, and none got through."
    )
    starts = start_requests(2, 2, f"{C}/x", passed=False)
    [said] = findings(started(), answer("rules", 1, A), ended(9, start_requests=starts))
    assert said.endswith("See unreachable")


DETAILS = [
    ("missing", 404, False, "missing"),
    ("missing", 410, False, "missing"),
    ("missing", 500, False, "missing"),  # a page that says "not found"
    ("missing", None, False, "missing"),  # a setting, or ftp
    ("missing", 401, False, "denied (4xx)"),
    ("missing", 403, False, "denied (4xx)"),
    ("missing", 451, False, "denied (4xx)"),
    ("missing", 403, True, "closed by REP_FORBIDDEN"),
]


def test_a_file_is_missing_only_if_the_site_says_so() -> None:
    for outcome, status, forbids, words in DETAILS:
        about = {"forbids": forbids}
        page = page_of(
            started(), answer(outcome, 1, A, status=status, about=about), ended(2)
        )
        [row] = rows(page, "origins")
        assert row[1] == words
        assert texts(page, "#look p") == [("Nothing does: every origin answered, and none refused a "
                                          "start request.")]  # fmt: skip
        assert texts(page, "#unreachable p") == ["No robots.txt was unreachable."]


async def test_origins_add_up_as_in_the_log(sites: Sites, tmp_path: Path) -> None:
    """With whatever a site may answer in place of rules."""
    answers: list[Any] = [
        *(RULES, "# nothing\n", "<!DOCTYPE html><title>Hello</title>", 404, 403, 451),
        *(redirect("/robots.txt"), 503),
    ]
    town = [sites.add(robots=robots) for robots in answers]
    for forbidden in ("allow", "disallow"):
        path = tmp_path / f"{forbidden}.html"
        settings = {"REP_REPORT": str(path), "REP_FORBIDDEN": forbidden}
        result = await crawl([site.url("/x") for site in town], settings)
        page = parse(path)
        whole = [row for row in page.cssselect("#outcomes-table tbody tr")
                 if "part" not in (row.get("class") or "")]  # fmt: skip
        told = [f"{texts(row, 'td')[1]} {texts(row, 'th')[0]}" for row in whole]
        told = [
            f"{one.replace(' 1 HTTP', ' (HTTP')})" if "HTTP 503" in one else one
            for one in told
        ]
        assert (
            summary(result)[0]
            == f"robots.txt of {len(town)} origins: {', '.join(told)}"
        )
        assert {" ".join(one.split()[1:]) for one in told} - {
            "unreachable (HTTP 503)"
        } < {*ANSWERS.values()}
        assert ("1 closed by REP_FORBIDDEN" in told) == (forbidden == "disallow")


def test_what_was_given_up_is_a_list_to_crawl_again() -> None:
    urls = [f"{A}/{number}?a=1&b=<2>" for number in range(3)]
    lost = [line("given_up", 2, A, url=urls[0], reason="HTTP 503")]
    lost += [line("unreachable", 3, A, url=url, reason="HTTP 503") for url in urls]
    page = page_of(started(), answer("unreachable", 1, A), *lost, ended(4))
    assert page.cssselect("#given-up-urls")[0].text.split() == urls  # each once
    assert len(page.cssselect("nav a[href='#given-up']")) == 1
    for quiet in ([], [started(dry_run=True), *lost, ended(4)]):
        assert page_of(*quiet).cssselect("#given-up") == []


def test_not_all_that_was_given_up_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHOWN_GIVEN_UP", 2)
    urls = [f"{A}/{'x' * 5000}", *(f"{A}/{number}" for number in range(4))]
    lost = [line("given_up", 2, A, url=url, reason="HTTP 503") for url in urls]
    page = page_of(started(), *lost, ended(4, given_up=5))
    assert page.cssselect("#given-up-urls")[0].text.split() == urls[1:3]
    assert texts(page, "#given-up .note")[-1] == "2 of 5 requests, each URL once."


def test_origins_are_in_the_order_of_their_domains() -> None:
    names = ["http://127.0.0.2", "http://127.0.0.11:80", "http://127.0.0.11:8080",
             "http://127.0.0.100", "http://[::1]:80", "http://a.example", "http://www2.a.example",
             "http://www10.a.example", "https://www10.a.example", "http://a.b.example"]  # fmt: skip
    page = page_of(
        started(), *[answer("rules", 1, one) for one in sorted(names)], ended(2)
    )
    assert [row[0] for row in rows(page, "origins")] == names


def test_what_overrules_lets_pass_is_not_allowed() -> None:
    lines = [
        line("allowed", 1, A, url=f"{A}/x", reason="RepMiddleware.overrules()", line=3)
    ]
    page = page_of(started(), *lines, line("allowed_count", 2, A, count=4), ended(3))
    found = numbers(page)
    assert (found["allowed"], found["let through by overrules()"]) == ("4", "1")
    heads = texts(page, "#origins-table thead th")
    assert rows(page, "origins")[0][heads.index("let through")] == "1"


def test_where_to_look_is_said_by_example() -> None:
    """What the project itself prevents has no answer, and a reason; not all origins are named."""
    town = [f"http://{number}.example" for number in range(6)]
    about = {"fetches": 0}
    lines = [
        answer("none", 1, one, reason="NotSupported: no handler", about=about)
        for one in town
    ]
    page = page_of(started(), *lines, ended(2))
    [finding] = texts(page, ".findings li")
    assert (
        finding
        == f"note 6 origins without an answer. See origins {', '.join(town[:5])}, …"
    )
    assert [row[0] for row in rows(page, "outcomes")] == ["without an answer"]
    assert {row[8] for row in rows(page, "origins")} == {"NotSupported: no handler"}


AT = "2027-01-15 08:00:00 to 2027-01-15 08:0"
SAYS: list[tuple[list[bytes], str, str]] = [
    ([started(), answer("rules", 1, A), ended(2)], "#look p", "Nothing does"),
    ([], ".banner", "The record is empty."),
    ([started(), ended(2)], "#requests p", "No robots.txt was requested."),
    ([started(dry_run=True), ended(2)], ".banner", "This was a dry run"),
    ([started(), ended(2)], "header p", f"{AT}0:02 UTC, 2.0 s"),
    ([started(), ended(185)], "header p", f"{AT}3:05 UTC, 3 min"),
    ([started()], "header p", f"{AT}0:00 UTC, 0.0 s, no end"),
    (
        [started(), ended(2, kept=3)],
        ".numbers",
        "allowed0 forbidden0 held0 kept for the next run3",
    ),
]


def test_what_the_page_says_of_a_crawl() -> None:
    for record, selector, words in SAYS:
        assert texts(parse(render(data_of(*record))), selector)[0].startswith(words)


def test_requests_that_only_waited_are_drawn() -> None:
    """Without an outage there is no bar, but there is how many waited."""
    waits = [line("held", n, "http://a.example", reason=UNKNOWN_YET) for n in range(3)]
    text = render(data_of(*waits, answer("rules", 4, "http://a.example"))).decode()
    assert "No robots.txt was unreachable." in text and "3 at the end" in text
    text = render(data_of(answer("rules", 4, "http://a.example"))).decode()
    assert "No robots.txt was unreachable." in text and "at the end" not in text


def test_crawls_are_side_by_side_with_what_changed(tmp_path: Path) -> None:
    """From one file to which both were appended, or from two."""
    bodies = {
        "0" * 64: b"Disallow: /a\nDisallow: /b\n",
        "1" * 64: b"Disallow: /b\r\nAllow: /\r\n",
    }
    crawls = []
    for number, sha256 in enumerate(bodies, 1):
        about = {"crawl": str(number), "time": f"2027-01-15T0{number}:00:00.000Z"}
        allowed = line("allowed_count", 0, A, count=7, **about)
        answers = [
            answer("rules", 0, A, sha256=sha256, **about),
            answer("missing", 0, B, **about),
        ]
        answers.append(
            answer(("rules", "unreachable")[number - 1], 0, "http://c.example", **about)
        )
        crawls.append(b"".join([started(about["crawl"], **about), *answers, allowed]))
    files = [tmp_path / "2.jsonl", tmp_path / "1.jsonl"]
    files[0].write_bytes(crawls[1])
    files[1].write_bytes(crawls[0])
    for record in ([BytesIO(b"".join(crawls))], files):
        data = ReportData.read(record)  # type: ignore[arg-type]
        data.add_texts(lambda _, sha256: bodies.get(sha256))
        page = parse(render(data))
        assert ["spider", "1", "2"] in rows(page, "crawls")
        assert ["allowed", "7", "7"] in rows(page, "crawls")
        assert ["origins: missing", "1", "1"] in rows(page, "crawls")
        assert texts(page, "#crawls details a") == [A, "robots.txt"]
        assert texts(page, "#crawls del, #crawls ins") == [
            "- Disallow: /a",
            "+ Allow: /",
        ]
        assert texts(page, "#crawls summary .count") == ["+1 −1"]
    page = parse(render(ReportData.read(files)))
    assert texts(page, "#crawls details .note") == [
        "The files differ, but their text isn't available."
    ]


async def test_again_it_replaces_the_old_one(sites: Sites, tmp_path: Path) -> None:
    path = tmp_path / "robots.html"
    path.write_text("x" * 1_000_000)
    await crawl(sites.add(robots=404).url("/"), {"REP_REPORT": str(path)})
    assert texts(parse(path), "h1") == ["robots.txt in the crawl of list"]
    assert path.stat().st_size < 100_000


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
        text = hostile.replace(
            "\ud800", ""
        )  # neither lines nor host names can have that
        page = parse(
            render(many(12, rule=text, url=hostile, error=hostile, origin=text))
        )
        assert [len(page.cssselect(name)) for name in ("script", "img", "table")] == [
            1,
            0,
            5,
        ]
        assert "49" not in texts(page, ".rule code")[0]
        if "\x00" not in hostile:
            assert texts(page, ".rule code")[0] == f"Disallow: /{hostile}"


def test_only_web_addresses_are_links() -> None:
    """A record may be anybody's."""
    for name in (
        "javascript:alert(1)",
        "data:text/html,x",
        "//x.example",
        "HTTP://x.example",
    ):
        page = parse(render(data_of(started(), answer("html", 1, name), ended(2))))
        assert rows(page, "origins")[0][0] == name
        assert all(one.get("href").startswith("#") for one in page.cssselect("main a"))


def test_no_more_than_a_browser_can_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is in the sums."""
    monkeypatch.setattr(reading, "SHOWN_ORIGINS", 20)
    monkeypatch.setattr(reading, "SHOWN_RULES", 10)
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
    """A warning at the start says so. Crawls without a report don't try to import the library."""
    for name in [*sys.modules]:
        if name.startswith(("jinja2", "scrapy_rep.reporting.report.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("scrapy_rep.reporting.report.find_spec", lambda _: None)
    site = sites.add()
    for settings in ({}, {"REP_REPORT": str(tmp_path / "robots.html")}):
        result = await crawl(site.url("/"), settings)
        assert set(result.responses) == {site.url("/")}
        result.assert_clean()
    assert lines(result, level="WARNING") == [
        'REP_REPORT needs jinja2, so there will be no report: pip install "scrapy-rep[report]"'
    ]


async def test_a_report_that_cannot_be_written_is_an_error(
    sites: Sites, tmp_path: Path
) -> None:
    result = await crawl(sites.add().url("/"), {"REP_REPORT": str(tmp_path)})
    [error] = lines(result, level="ERROR")
    assert error.startswith(
        f"REP_REPORT: can't write the report to {tmp_path}: IsADirectory"
    )
    result.assert_clean()


def test_a_small_share_is_not_zero() -> None:
    shares = []
    for forbidden in (0, 4, 46, 3_100, 10_000):
        allowed = line("allowed_count", 1, A, count=10_000 - forbidden)
        page = page_of(started(), allowed, *[refused(A)] * forbidden, ended(2))
        shares.append(rows(page, "origins")[0][7])
    assert shares == ["0 %", "< 0.1 %", "0.5 %", "31 %", "100 %"]


def test_a_sitemap_is_a_row() -> None:
    """What was taken, what was rejected and why, or why it could not be read."""
    found = rows(parse(render(many(3))), "sitemaps")
    assert found[0][1:3] == ["index", "http://site2.example/a.xml"]
    assert found[0][8] == "HTTP 404"
    assert found[1][3:8] == ["urlset", "900", "897", "3", "3 already known"]


def test_what_pages_say_is_on_the_page() -> None:
    told = [line(one, 1, A, reason=one, dry_run=dry) for one, dry in (
        ("nofollow", False), ("noindex", False), ("noindex", True)
    )]  # fmt: skip
    found = rows(parse(render(data_of(started(), *told, ended(2)))), "pages")
    assert sorted(row[:4] for row in found) == [
        ["items from pages that say noindex", "noindex", "2", "1"],
        ["requests from pages that say nofollow", "nofollow", "1", "1"],
    ]
