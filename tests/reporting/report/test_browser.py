"""The report as somebody sees it: in a real browser, headless Chromium."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from scrapy_rep.reporting.report import render
from tests.helpers.held import origin_of
from tests.helpers.report_browser import Browser, needs_chromium
from tests.helpers.report_many import many
from tests.helpers.report_town import ReportTown
from tests.helpers.servers import Sites

# The page is the same on every reactor.
pytestmark = [needs_chromium, pytest.mark.process]


@pytest.fixture(scope="module")
def the_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture
def browser(the_browser: Browser) -> Browser:
    """With nothing of the last test in its logs."""
    the_browser.driver.get("about:blank")
    the_browser.prefer("light")
    the_browser.complaints()
    the_browser.requested()
    return the_browser


@pytest.fixture(scope="module")
def page_of_many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 2,500 origins, 250 of them with spells."""
    path = tmp_path_factory.mktemp("many") / "robots.html"
    path.write_bytes(render(many(2_500)))
    return path


async def test_what_a_crawl_was(sites: Sites, tmp_path: Path, browser: Browser) -> None:
    town, path = ReportTown(sites), tmp_path / "robots.html"
    result = await town.crawl(path)
    browser.open(path)
    assert browser.driver.title == "robots.txt in the crawl of list"
    assert browser.text("#allowed") == "45"
    assert browser.text("#forbidden") == "34"
    assert browser.text("#held") == str(result.stats["rep/deferred"])
    assert browser.text("section[aria-labelledby=outcomes] tbody").split("\n") == [
        "with rules 3", "without restrictions 1", "unreachable 1"
    ]  # fmt: skip
    assert browser.column("#rules-table", 0) == ["12", "10", "9", "3"]
    assert browser.column("#rules-table", 1)[0] == origin_of(town.rules)
    # Three bars whose lengths are as 3 to 1 to 1.
    widths = browser.run(
        "[...document.querySelectorAll('.bar .rect')].map((r) => r.getBoundingClientRect().width)"
    )
    assert sorted(round(max(widths) / width) for width in widths) == [1, 3, 3]
    # A bar for each spell, and an area that is filled.
    assert browser.run("document.querySelectorAll('svg .series .nofill').length") == 2
    area = "getComputedStyle(document.querySelector('svg .series .line:not(.nofill)'))"
    assert browser.run(f"{area}.fill") not in ("none", "rgb(0, 0, 0)")
    assert browser.complaints() == []
    assert browser.requested() == [path.as_uri()]


def test_a_table_is_sorted_by_mouse_and_keyboard(page_of_many: Path, browser: Browser) -> None:
    """By a click and from the keyboard; of rows on display and of others."""
    browser.open(page_of_many)
    head = browser.one("#rules-table thead th:nth-child(3) button")
    table = "#rules-table"

    def shown() -> list[int]:
        return [int(cell) for cell in browser.column(table, 2)]

    def sort() -> Any:
        return browser.run("arguments[0].parentElement.getAttribute('aria-sort')", head)

    assert sort() is None
    assert shown() != sorted(shown())
    head.click()
    assert sort() == "descending"
    assert shown() == sorted(shown(), reverse=True)
    browser.run("arguments[0].focus()", head)
    for key, order in ((Keys.ENTER, "ascending"), (Keys.SPACE, "descending")):
        ActionChains(browser.driver).send_keys(key).perform()
        assert sort() == order
        assert shown() == sorted(shown(), reverse=order == "descending")
    heads = "[...document.querySelectorAll('#rules-table [aria-sort]')].length"
    assert browser.run(heads) == 1
    assert "sorted by line, descending" in browser.run(
        "document.getElementById('status').innerText"
    )


def test_words_are_sorted_as_words(page_of_many: Path, browser: Browser) -> None:
    """Numbers within them as numbers, times by their length."""
    browser.open(page_of_many)
    browser.one("#origins-table thead th:nth-child(1) button").click()
    assert browser.column("#origins-table", 0)[:3] == [
        "http://site0.example", "http://site1.example", "http://site2.example"
    ]  # fmt: skip
    browser.one("#spells-table thead th:nth-child(4) button").click()
    lengths = browser.run(
        "[...document.querySelector('#spells-table').tBodies[0].rows]"
        ".map((row) => parseFloat(row.cells[3].dataset.v))"
    )
    assert lengths == sorted(lengths)
    assert len(lengths) == 250
    assert len(browser.column("#spells-table", 0)) == 200


def test_all_by_tab_alone(page_of_many: Path, browser: Browser) -> None:
    """Every control can be reached from the keyboard, and it is seen where one is."""
    browser.open(page_of_many)
    reached: set[str] = set()
    count = browser.run("document.querySelectorAll('button, input').length")
    for _ in range(count + 10):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        active = browser.driver.switch_to.active_element
        if active.tag_name in ("button", "input"):
            reached.add(active.id)
            assert active.value_of_css_property("outline-style") != "none"
    assert len(reached) == count


def test_ten_thousand_origins_are_shown_on_request(tmp_path: Path, browser: Browser) -> None:
    """On display in a moment, the first 200 first; all of them on request."""
    path = tmp_path / "robots.html"
    path.write_bytes(render(many(10_000)))
    browser.open(path)
    assert len(browser.column("#origins-table", 0)) == 200
    # Both at once: a browser takes seconds to lay out 10,000 rows.
    browser.run(
        "['[data-more=origins-table]', '#origins-table thead th:nth-child(5) button']"
        ".forEach((selector) => document.querySelector(selector).click())"
    )
    assert len(browser.column("#origins-table", 0)) == 10_000
    forbidden = [int(cell) for cell in browser.column("#origins-table", 4)]
    assert forbidden == sorted(forbidden, reverse=True)
    browser.one("[data-more=origins-table]").click()
    assert len(browser.column("#origins-table", 0)) == 200
    assert path.stat().st_size < 6_000_000
    assert browser.complaints() == []


def test_the_filter_shows_matching_origins_only(page_of_many: Path, browser: Browser) -> None:
    browser.open(page_of_many)
    field = browser.one("input[type=search]")
    field.send_keys("SITE99")
    found = browser.column("#origins-table", 0)
    assert set(found) == {
        "http://site99.example",
        *(f"http://site99{n}.example" for n in range(10)),
    }
    none = "document.getElementById('origins-table-none').offsetParent !== null"
    assert not browser.run(none)
    field.clear()
    field.send_keys("http 503")  # any column
    failed = browser.column("#origins-table", 10)
    assert failed and set(failed) == {"HTTP 503"}
    field.clear()
    field.send_keys("nothing has this")
    assert browser.column("#origins-table", 0) == []
    assert browser.run(none)
    field.clear()
    field.send_keys("x", Keys.BACKSPACE)
    assert not browser.run(none)
    assert len(browser.column("#origins-table", 0)) == 200


def luminance(colour: str) -> float:
    """Of "rgb(r, g, b)", as WCAG 2 defines it."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


COLOURS = """(() => {
    const solid = (e) => {
        for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (!colour.startsWith("rgba(0, 0, 0, 0")) return colour;
        }
        return getComputedStyle(document.documentElement).backgroundColor;
    };
    const found = {};
    for (const e of document.querySelectorAll("body *")) {
        const svg = e.closest("svg");
        if (e.tagName === "SCRIPT" || !e.getClientRects().length) continue;
        const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        const style = getComputedStyle(e);
        const key = (kind) => `${kind} ${e.tagName} ${e.getAttribute("class") ?? ""}`;
        if (text) found[key("text")] = [svg ? style.fill : style.color, solid(e)];
        if (svg && e.matches(".bar .rect")) found[key("graphic")] = [style.fill, solid(svg)];
        if (svg && e.matches(".series .line")) found[key("graphic")] = [style.stroke, solid(svg)];
    }
    return found;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_contrast_is_enough_in_light_and_dark(
    sites: Sites, tmp_path: Path, browser: Browser, scheme: str
) -> None:
    """WCAG 2, AA: 4.5 to 1 for text, 3 to 1 for what is drawn."""
    path = tmp_path / "robots.html"
    await ReportTown(sites).crawl(path, REP_DRY_RUN=scheme == "dark")
    browser.prefer(scheme)
    browser.open(path)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (luminance(background) < 0.2) == (scheme == "dark")
    found = browser.run(COLOURS)
    assert {"text H1 ", "text CAPTION ", "text text "} <= {*found}
    assert any(key.startswith("graphic") for key in found)
    for what, (ink, paper) in found.items():
        assert contrast(ink, paper) >= (4.5 if what.startswith("text") else 3), (what, ink, paper)


def test_on_a_phone_the_page_does_not_scroll_sideways(page_of_many: Path, browser: Browser) -> None:
    """Tables scroll within themselves; the page does not."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.open(page_of_many)
        assert browser.run("document.documentElement.scrollWidth") <= 360
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


LONG = (
    "CannotResolveHostError: DNS lookup failed: no results for hostname lookup: a-rather-long-name"
)
CLIPPED = """[...document.querySelectorAll('svg text')].filter((text) => {
    const [box, chart] = [text, text.closest('svg')].map((one) => one.getBoundingClientRect());
    return box.width && (box.left < chart.left - 1 || box.right > chart.right + 1);
}).map((text) => text.textContent)"""


def test_tables_and_labels_fit(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "robots.html"
    path.write_bytes(render(many(60, error=LONG, origin="-of-a-shop-in-a-far-country")))
    browser.open(path)
    for box in ("Origins", "Lines that blocked", "Unreachable periods"):
        wide = f"document.querySelector('[aria-label=\"{box}\"]')"
        assert browser.run(f"{wide}.scrollWidth <= {wide}.clientWidth"), box
    assert browser.run(CLIPPED) == []
    longest = browser.run(
        "Math.max(...[...document.querySelectorAll('.axis.y text')].map((e) => e.textContent.length))"
    )
    assert longest > 30
    ticks = browser.run("[...document.querySelectorAll('.axis.x text')].map((e) => e.textContent)")
    assert ticks and all(
        tick.endswith((":00", ":20", ":40", ":30", ":15", ":45")) for tick in ticks
    )


def test_charts_on_a_phone_can_be_read(page_of_many: Path, browser: Browser) -> None:
    """They scroll within their frames."""
    browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.open(page_of_many)
        heights = browser.run(
            "[...document.querySelectorAll('svg text')].map((e) => e.getBoundingClientRect().height)"
        )
        assert min(height for height in heights if height) > 9
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_print_repeats_headings_and_breaks_no_word(page_of_many: Path, browser: Browser) -> None:
    browser.open(page_of_many)
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        head = "getComputedStyle(document.querySelector('#origins-table thead'))"
        assert browser.run(f"{head}.display") == "table-header-group"
        assert browser.run(f"{head}.breakInside") == "avoid"
        for cell in ("thead th", "td.word", "td.number"):
            style = f"getComputedStyle(document.querySelector('#origins-table {cell}'))"
            assert browser.run(f"{style}.overflowWrap") == "normal"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_print_is_light_and_has_no_controls(tmp_path: Path, browser: Browser) -> None:
    """Light, whatever the screen is, and without what only a screen can do."""
    path = tmp_path / "robots.html"
    path.write_bytes(render(many(30)))
    browser.prefer("dark")
    browser.open(path)
    media = {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
        assert luminance(browser.run("getComputedStyle(document.body).backgroundColor")) == 1
        assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert base64.b64decode(browser.pdf()).startswith(b"%PDF-")


HOSTILE = "</script></style><script>document.title='gone'</script><img src=//x onerror=alert(1)>"


def test_hostile_text_runs_no_script(tmp_path: Path, browser: Browser) -> None:
    path = tmp_path / "robots.html"
    path.write_bytes(render(many(30, rule=HOSTILE, url=HOSTILE, error=HOSTILE, origin=HOSTILE)))
    browser.open(path)
    assert browser.driver.title != "gone"
    assert HOSTILE in browser.text("#rules-table tbody")
    assert browser.run("document.images.length") == 0
    assert browser.complaints() == []
    assert browser.requested() == [path.as_uri()]


def test_the_policy_blocks_what_got_through(tmp_path: Path, browser: Browser) -> None:
    """Even if something got through, it could load and run nothing. (So the tests above see it.)"""
    path = tmp_path / "robots.html"
    evil = b"<script>document.title='gone'</script><img src='http://127.0.0.1:9/x'></body>"
    path.write_bytes(render(many(3)).replace(b"</body>", evil))
    browser.open(path)
    assert browser.driver.title != "gone"
    assert len(browser.complaints()) == 2
    assert browser.requested() == [path.as_uri()]
