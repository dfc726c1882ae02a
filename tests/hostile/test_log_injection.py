"""What others write steers no terminal, forges no line of a log and breaks no record: rules, sitemap
lines, URLs, messages of errors, in every output. What can be printed stays as it was written."""

from __future__ import annotations

import ast
import gc
import importlib
import io
import json
import logging
import pkgutil
import weakref
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

import scrapy_rep
from scrapy_rep.commands.terminal import Output
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.log import get_logger
from scrapy_rep.protocol import Decision, Origin, Rule
from scrapy_rep.report.page import render
from scrapy_rep.sitemaps.outcome import Report
from scrapy_rep.words import clean, json_line
from tests.helpers.behaviours import answer
from tests.helpers.crawling import CrawlResult, captured_log, crawl
from tests.helpers.log import lines, summary, warnings
from tests.helpers.report_many import many
from tests.helpers.robots_command import project, robots
from tests.helpers.servers import Sites

EVIL = {
    "ESC": "\x1b[31m",
    "OSC": "\x1b]0;title\x07",
    "CSI": "\u009b31m",
    "NEL": "\u0085",
    "line separator": "\u2028",
    "right to left": "\u202e",
    "newline": "\n2026-01-01 [scrapy] CRITICAL: forged",
    "return": "\r",
    "NUL": "\0",
    "BOM": "\ufeff",
    "surrogate": "\ud800",
    "private": "\U000f0000",
}
EVERYTHING = "".join(EVIL.values())
READABLE = "é漢字 ß\u0416 \U0001f600"

# What can stand in a line of a robots.txt.
IN_A_LINE = "".join(text for name, text in EVIL.items()
                    if name not in ("newline", "return", "NUL", "surrogate"))  # fmt: skip


def assert_clean_text(text: str) -> None:
    assert [one for line in text.split("\n") for one in line if not one.isprintable()] == []
    assert not any(line.startswith("2026-01-01") for line in text.split("\n"))


def assert_clean_log(result: CrawlResult) -> None:
    """Ours, and what Scrapy says of our exceptions."""
    for record in result.records:
        if record.name.startswith("scrapy_rep") or "robots.txt" in record.getMessage():
            assert_clean_text(logging.Formatter("%(name)s %(message)s").format(record))


# -- the one function ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("\u009b", r"\u009b"),
        ("\u0085", r"\u0085"),
        ("\u2028\u202e", r"\u2028\u202e"),
        ("\n\r\t\0", r"\x0a\x0d\x09\x00"),
        ("\ud800", r"\ud800"),
        ("\U000e0001", r"\U000e0001"),
        (READABLE, READABLE),
        ("a\\b", "a\\b"),
        ("", ""),
    ],
)
def test_what_is_cleaned_and_what_stays(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(clean(text)) == clean(text)


def test_json_keeps_the_values() -> None:
    line = json_line({"rule": EVERYTHING + READABLE, "status": 200, "none": None})
    assert line.isprintable()
    assert READABLE in line
    assert json.loads(line)["rule"] == (EVERYTHING + READABLE).replace("\ud800", r"\ud800")
    line.encode()


# -- the loggers -----------------------------------------------------------------------------


class Foreign(Exception):
    def __str__(self) -> str:
        return EVERYTHING


@pytest.mark.parametrize(
    "arguments",
    [
        ("%s", EVERYTHING),
        ("%s %d %.1f", Foreign(), 3, 2.5),
        ("%(error)s", {"error": Foreign(EVERYTHING)}),
        ("%(request)s", {"request": Request("data:,", meta={})}),
        (EVERYTHING,),
        (Foreign(),),
    ],
    ids=repr,
)
def test_arguments_of_log_messages(arguments: tuple[Any, ...]) -> None:
    with captured_log() as records:
        get_logger("scrapy_rep.test").warning(*arguments)
    [record] = records
    assert record.getMessage().isprintable()


def test_tracebacks_of_hostile_exceptions() -> None:
    """Of an exception whose message has lines of its own."""
    with captured_log() as records:
        try:
            raise ValueError(EVERYTHING)
        except ValueError:
            get_logger("scrapy_rep.test").exception("Bug: %s", "x")
    text = logging.Formatter("%(levelname)s %(message)s").format(records[0])
    assert_clean_text(text)
    head, first, *others = text.split("\n")
    assert (head, first) == ("ERROR Bug: x", "Traceback (most recent call last):")
    assert all(line.startswith("  ") for line in others)


def test_what_cannot_be_shown() -> None:
    class Broken:
        def __str__(self) -> str:
            raise OverflowError

    with captured_log() as records:
        get_logger("scrapy_rep.test").warning("%s", Broken())
    assert records[0].getMessage() == "<Broken>"


MODULES = [one.name for one in pkgutil.walk_packages(scrapy_rep.__path__, "scrapy_rep.")]
LOGGING = {f"logging.{name}" for name in ("getLogger", "Logger", "LoggerAdapter", "debug", "info", "warning", "warn", "error",
           "exception", "critical", "fatal", "log", "basicConfig")}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_its_logger_from_one_place(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    if name == "scrapy_rep.log":
        return
    found = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in LOGGING:
            found[node.lineno] = ast.unparse(node)
        if isinstance(node, ast.Attribute) and node.attr == "logger":
            found[node.lineno] = "a logger of somebody else's"
        if isinstance(node, ast.ImportFrom) and node.module == "logging":
            found[node.lineno] = "from logging import"
    assert found == {}, "use scrapy_rep.log.get_logger"
    for value in vars(module).values():
        if isinstance(value, logging.Logger):
            assert get_logger(value.name).filters == value.filters != []


# -- in crawls -------------------------------------------------------------------------------


async def test_a_rule_in_every_output(sites: Sites, tmp_path: Path) -> None:
    """Log, exception, audit trail, summary, report, stats."""
    evil = "\u009b31m\u202e\u0085\u2028é漢"  # ASCII matches no URL that Scrapy sends
    site = sites.add(
        robots=answer(f"User-agent: *\nDisallow: /p*{evil}*\nDisallow: /x{IN_A_LINE}\n")
    )
    trail, report = tmp_path / "d.jsonl", tmp_path / "report.html"
    encoded = Request(site.url(f"/p{evil}x")).url
    result = await crawl(
        [encoded],
        {"REP_DECISIONS": str(trail), "REP_REPORT": str(report), "LOG_LEVEL": "DEBUG"},
    )
    result.assert_clean()
    assert_clean_log(result)
    error = result.failure(encoded)
    assert isinstance(error, RobotsDisallowed)
    assert r"Disallow: /p*\u009b31m\u202e\u0085\u2028é漢" in str(error)
    assert r"\u009b31m\u202e\u0085\u2028é漢" in "\n".join(summary(result))
    text = trail.read_bytes().decode()
    assert_clean_text(text)
    [record] = [one for one in map(json.loads, text.splitlines()) if one["url"] == encoded]
    assert record["rule"] == f"Disallow: /p*{evil}*"
    assert_clean_text(report.read_text("utf-8"))
    assert_clean_text("".join(map(str, result.stats)))


async def test_an_error_in_every_output(sites: Sites, tmp_path: Path) -> None:
    """Its message is in the log, the exception, the record and the summary of what went wrong."""

    class Hostile:
        def process_response(self, request: Request, response: Any) -> Any:
            if request.url.endswith("robots.txt"):
                raise RuntimeError(EVERYTHING + READABLE)
            return response

    site, trail, report = sites.add(), tmp_path / "d.jsonl", tmp_path / "report.html"
    result = await crawl(
        site.url("/x"),
        {
            "DOWNLOADER_MIDDLEWARES": {Hostile: 50},
            "REP_DECISIONS": str(trail),
            "REP_REPORT": str(report),
        },
    )
    assert_clean_log(result)
    error = result.failure(site.url("/x"))
    assert isinstance(error, RobotsUnreachable)
    assert_clean_text(str(error) + error.reason)
    assert READABLE in error.reason
    assert_clean_text(trail.read_bytes().decode())
    assert_clean_text(report.read_text("utf-8"))


def test_exceptions_of_any_rule() -> None:
    origin = Origin.from_url("http://a.example")
    decision = Decision(False, Rule(1, EVERYTHING + READABLE, False), "*")
    for error in (
        RobotsDisallowed(origin, decision),
        RobotsUnreachable(origin, EVERYTHING + READABLE, 2),
    ):
        assert str(error).isprintable()
        assert READABLE in str(error)


async def test_sitemap_lines_without_end(sites: Sites) -> None:
    """Each is told, up to three of them; then their number."""
    listed = [f"Sitemap: /{number}{IN_A_LINE}.xml\n" for number in range(400)]
    listed += ["Sitemap: http://[x\u202e\x1b/\n"] * 2
    result = await crawl(sites.add(robots="".join(listed)).url("/x"))
    result.assert_clean()
    assert_clean_log(result)
    told = warnings(result)
    assert len(told) == 4
    assert r"relative URL: /0\x1b[31m" in told[0]
    assert told[3].endswith(": 398 more lines with such sitemaps")


def test_what_was_told_holds_on_to_no_crawler() -> None:
    """A process may run crawls without end."""
    crawler: Any = Crawler(Spider)
    crawler.stats = StatsCollector(crawler)
    Report(crawler, "http://a.example/x", "http://a.example").failed("why", quiet=False)
    gone = weakref.ref(crawler)
    del crawler
    gc.collect()
    assert gone() is None


async def test_sitemaps_with_problems(sites: Sites) -> None:
    """An origin's first five are warned of; an XML error's newline comes through libxml2."""
    name = f"<urlset>&#10;\u0085\u2028\u202e{EVIL['newline']}</x\u202e"
    listed = "".join(f"Sitemap: @/{number}.xml\n" for number in range(30))
    site = sites.add()
    for number in range(30):
        body = name.encode() if number % 2 else b"<urlset><url><loc>" + EVIL["newline"].encode()
        site.set(f"/{number}.xml", answer(body, type="text/xml") if number % 3 else 404)
    site.set("/robots.txt", listed.replace("@", site.url("")))
    result = await crawl(site.url("/x"), {"REP_SITEMAPS": True})
    result.assert_clean()
    assert_clean_log(result)
    told = warnings(result)
    assert len(told) == 6
    assert "more problems with sitemaps, of 1 origin" in told[5]
    assert len(lines(result, "Sitemap ", level="DEBUG")) >= 10


# -- the report and the commands -------------------------------------------------------------


def test_the_page_of_the_report() -> None:
    text = EVERYTHING.replace("\ud800", "") + READABLE
    page = render(many(3, rule=text, url=text, error=text, origin=text)).decode()
    assert_clean_text(page)
    assert READABLE in page


def test_tables_on_a_terminal() -> None:
    stream = io.StringIO()
    Output(stream).table([(EVERYTHING, READABLE)])
    assert_clean_text(stream.getvalue())
    assert READABLE in stream.getvalue()


ROBOTS = f"User-agent: *\u202e\nUser-agent: *\nDisallow: /p{IN_A_LINE}é漢\nDisallow: /p\nx{IN_A_LINE}\nSitemap: /{IN_A_LINE}\n"


@pytest.mark.process
@pytest.mark.parametrize("how", [(), ("--explain",), ("--lint",), ("--json", "--explain")], ids=str)
def test_commands_that_print_files(project: Path, how: tuple[str, ...]) -> None:
    (project / "robots.txt").write_text(ROBOTS)
    if "--lint" in how:
        done = robots(project, "--lint", "robots.txt")
    else:
        done = robots(project, "--file", "robots.txt", *how, "http://a.example/p")
    assert_clean_text(done.out + done.err)
    assert "Disallow" in done.out or "no-field" in done.out


__all__ = ["project"]
