"""The report as somebody sees it: in a real browser, headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from scrapy_rep.reporting.report import render
from tests.reporting.report.browser import Browser, needs_axe, needs_chromium
from tests.reporting.report.records import (
    answer,
    data_of,
    ended,
    line,
    many,
    many_lines,
    started,
)

# The page is the same on every reactor.
pytestmark = [needs_chromium, pytest.mark.process]

LONG = "-of-a-shop-with-a-long-name-in-a-far-away-country"
Show = Callable[..., Path]
HOSTILE = "</script></style><script>document.title='gone'</script><img src=//x onerror=alert(1)>"
ORIGINS = "#origins-table"


@pytest.fixture(scope="module")
def the_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.driver.quit()


@pytest.fixture
def browser(the_browser: Browser) -> Iterator[Browser]:
    """With nothing of the last test in its logs."""
    the_browser.driver.get("about:blank")
    the_browser.prefer("light")
    the_browser.complaints()
    the_browser.requested()
    yield the_browser
    the_browser.width(0)
    the_browser.scripts(run=True)


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Callable[..., Path]:
    """Opens a page: of so many origins, or of these lines. With something *inserted* at its end."""

    def show(what: int | list[bytes], inserted: bytes = b"", **more: str) -> Path:
        data = data_of(*what) if isinstance(what, list) else many(what, **more)
        path = tmp_path / "robots.html"
        path.write_bytes(render(data).replace(b"</body>", inserted + b"</body>"))
        browser.driver.get(path.as_uri())
        # On a busy machine it is said to be there before its end is.
        WebDriverWait(browser.driver, 60).until(
            lambda driver: driver.find_elements("tag name", "footer")
        )
        return path

    return show


def test_bars_are_drawn(browser: Browser, show: Show) -> None:
    """As long as their shares are, and those of origins that were given up look other."""
    gone = [answer("unreachable", 2, "http://gone.example", status=503)]
    gone.append(line("given_up", 9, "http://gone.example", reason="HTTP 503"))
    path = show([*many_lines(20)[:-1], *gone, ended(80)])
    widths = browser.run(
        "[...document.querySelectorAll('#outcomes-table rect')]"
        ".map((r) => r.getBoundingClientRect().width)"
    )
    # 16 origins with rules; 3 without restrictions, all of them missing; 2 unreachable.
    assert [round(2 * width / min(widths)) for width in widths] == [16, 3, 3, 2]
    colours = dict(
        browser.run(
            "[...document.querySelectorAll('#unreachable-table tbody:last-child tr')].map((row) =>"
            "[row.cells[0].textContent, getComputedStyle(row.querySelector('rect')).fill])"
        )
    )
    assert colours["http://gone.example"] != colours["http://site1.example"]
    assert browser.complaints() == []
    assert set(browser.requested()) == {path.as_uri()}


WRAPPED = """[...document.querySelectorAll('.scroll tbody th, .scroll td:not(.long)')].filter((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const tops = new Set([...range.getClientRects()].filter((r) => r.width).map((r) => Math.round(r.top / 9)));
    return !cell.querySelector('svg, br') && tops.size > 2;
}).map((cell) => cell.textContent)"""
ENDS = """[...document.querySelectorAll('#origins-table .mid')].map((one) =>
    [one.firstChild.getBoundingClientRect().width, one.scrollWidth - one.clientWidth])"""
LEFT = """[...document.querySelectorAll('[data-kind=number], [data-kind=count]')]
    .filter((head) => head.matches('th')).flatMap((head) =>
        [head, ...[...head.closest('table').rows].slice(2).map((row) => row.cells[head.cellIndex])])
    .filter((cell) => cell && cell.colSpan === 1 && getComputedStyle(cell).textAlign !== 'right').length"""


@pytest.mark.parametrize("name", ["", LONG])
def test_at_each_width_nothing_is_torn(browser: Browser, show: Show, name: str) -> None:
    """Tables scroll within themselves, the page does not; no name, port or number is wrapped; numbers
    stand to the right; of a name that is cut, both ends are there to see."""
    show(61, origin=name)
    for width in (390, 1400, 1920):
        browser.width(width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run(WRAPPED) == []
        assert browser.run(LEFT) == 0
        ends = browser.run(ENDS)
        assert all(start > 30 and over <= 1 for start, over in ends)
        assert bool(ends) == bool(name)


@needs_axe
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1400, "dark")])
def test_axe_finds_no_violation(
    browser: Browser, show: Show, width: int, scheme: str
) -> None:
    """Contrast included, and of what is opened, too."""
    browser.width(width)
    browser.prefer(scheme)
    show(12)
    dark = (
        browser.run("getComputedStyle(document.body).backgroundColor")
        != "rgb(252, 252, 251)"
    )
    assert dark == (scheme == "dark")
    browser.run(
        "document.querySelectorAll('details').forEach((one) => { one.open = true })"
    )
    assert browser.violations() == []


def test_a_table_is_sorted_by_mouse_and_keyboard(browser: Browser, show: Show) -> None:
    show(61)
    head = browser.one(f"{ORIGINS} thead th:nth-child(7) button")
    forbidden = sorted(number % 9 + 1 for number in range(61))
    seen = []

    def look() -> None:
        order = browser.run(
            "arguments[0].parentElement.getAttribute('aria-sort')", head
        )
        seen.append((order, [int(cell) for cell in browser.column(ORIGINS, 6)]))

    head.click()
    look()
    browser.run("arguments[0].focus()", head)
    for key in (Keys.ENTER, Keys.SPACE):
        ActionChains(browser.driver).send_keys(key).perform()
        look()
    down, up = ("descending", forbidden[::-1]), ("ascending", forbidden)
    assert seen == [down, up, down]


def test_names_and_durations_have_an_order(browser: Browser, show: Show) -> None:
    """Names with the numbers in them."""
    show(61)
    browser.one(f"{ORIGINS} thead th:nth-child(1) button").click()
    names = browser.column(ORIGINS, 0)[:3]
    assert names == [f"http://site{number}.example" for number in range(3)]
    browser.one("#unreachable-table thead th:nth-child(4) button").click()
    seconds = browser.run(
        "[...document.querySelector('#unreachable-table tbody:last-child').rows]"
        ".map((row) => parseFloat(row.cells[3].dataset.v))"
    )
    assert seconds == sorted(seconds) != []  # at first, the longest come first


def test_hosts_are_sorted_by_domain(browser: Browser, show: Show) -> None:
    """By the page as by the record."""
    names = ["http://127.0.0.2", "http://127.0.0.11:80", "http://127.0.0.11:8080",
             "http://127.0.0.100", "http://[::1]:80", "http://a.example", "http://www2.a.example",
             "http://www10.a.example", "https://www10.a.example", "http://a.b.example"]  # fmt: skip
    show([started(), *[answer("rules", 1, name) for name in sorted(names)], ended(2)])
    assert browser.column(ORIGINS, 0) == names
    for order in (names, names[::-1]):
        browser.one(f"{ORIGINS} thead th:nth-child(1) button").click()
        assert browser.column(ORIGINS, 0) == order


def test_it_is_seen_how_a_table_is_sorted(browser: Browser, show: Show) -> None:
    """From the beginning: by a column, or in words."""
    show(61)

    def order(section: str) -> str:
        text = browser.one(f"#{section} .order").text
        assert isinstance(text, str)
        return text

    assert order("origins") == "refused or held most often first"
    assert order("unreachable") == "by length, largest first"
    assert order("pages") == "by count, largest first"
    browser.one(f"{ORIGINS} thead th:nth-child(1) button").click()
    assert order("origins") == "by origin, A first"
    arrow = browser.run(
        "getComputedStyle(document.querySelector('#origins [aria-sort] button'), '::after').content"
    )
    assert "↑" in arrow


def test_what_was_given_up_is_copied_and_saved(
    browser: Browser, show: Show, tmp_path: Path
) -> None:
    urls = [f"http://a.example/{number}?x=<a>&y=1" for number in range(3)]
    show(
        [
            started(),
            *[line("given_up", 1, "http://a.example", url=url) for url in urls],
            ended(2),
        ]
    )
    origin = {"permission": {"name": "clipboard-write"}, "setting": "granted"}
    browser.tell("Browser.setPermission", **origin)
    browser.tell(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path)
    )
    copy, download = browser.driver.find_elements("css selector", "#given-up button")
    copy.click()
    WebDriverWait(browser.driver, 20, 0.05).until(lambda _: copy.text == "Copied")
    assert browser.run("getSelection().toString()").split() == urls
    download.click()
    saved = tmp_path / "given-up.txt"
    WebDriverWait(browser.driver, 20, 0.05).until(lambda _: saved.exists())
    assert saved.read_text("utf-8").split() == urls
    assert browser.complaints() == []


def test_a_table_with_every_column_fits_the_page(browser: Browser, show: Show) -> None:
    """On a desk. On a phone it scrolls."""
    site, gone = "http://a-shop-with-a-name.example", "http://gone.example"
    about = {"bytes": 123_456, "sitemaps": 3, "crawl_delay": 2.5}
    why = "DownloadFailedError: " + "a reason that takes some words to tell, " * 6
    every = [answer("rules", 1, site, status=200, about=about)]
    every += [line("held", 2, site, reason="no answer yet"), line("released", 3, site)]
    every += [answer("unreachable", 2, gone, status=503, reason=why)]
    every += [line("held", 3, gone, reason=why), line("given_up", 9, gone, reason=why)]
    every += [line("unreachable", 9, gone, url=f"{gone}/x", reason=why)]
    every += [
        line(
            "allowed", 9, gone, url=f"{gone}/x", reason="REP_UNREACHABLE is 'allow'; x"
        )
    ]
    show([*many_lines(61)[:-1], *every, ended(90)])
    assert (
        browser.run(f"document.querySelector('{ORIGINS}').tHead.rows[0].cells.length")
        == 17
    )
    for width in (1400, 1920):
        browser.width(width)
        boxes = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
        assert max(browser.run(boxes)) <= 1, width


def test_the_timeline_is_as_wide_as_the_page(browser: Browser, show: Show) -> None:
    show(61)
    for width, height in ((390, 100), (1400, 150), (1920, 150)):
        browser.width(width)
        chart = browser.run(
            "((r) => [r.width, r.height])(document.querySelector('svg.area').getBoundingClientRect())"
        )
        assert chart[0] > 0.9 * width
        assert chart[1] > height


def test_each_column_has_its_filter(browser: Browser, show: Show) -> None:
    """ "503" of a status is 503, not what has a 5, a 0 and a 3 somewhere in its row."""
    show(61)

    def only(column: int, value: str) -> set[str]:
        field = browser.one(f"{ORIGINS} .filters td:nth-child({column}) > *")
        field.send_keys(value)
        found = browser.column(ORIGINS, column - 1)
        script = (
            "arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))"
        )
        browser.driver.execute_script(script, field)
        return set(found)

    assert only(1, "SITE5") == {f"http://site{n}.example" for n in (5, *range(50, 60))}
    assert only(3, "503") == {"503"}
    assert only(3, "50") == set()
    assert only(7, ">= 9") == {"9"}
    assert only(7, "<3") == {"1", "2"}
    assert len(only(7, "> x")) == 9  # is no condition
    assert only(2, "missing") == {"missing"}
    browser.one(f"{ORIGINS} .filters input").send_keys("site5")
    assert browser.one("#origins output").text == "11 of 61 rows"


def test_what_needs_a_look_leads_to_the_rows(browser: Browser, show: Show) -> None:
    show(61)
    browser.one(".findings a[data-filter='with HTML in its place']").click()
    assert set(browser.column(ORIGINS, 1)) == {"with HTML in its place"}
    browser.one("#outcomes-table a[data-filter='missing']").click()
    assert set(browser.column(ORIGINS, 1)) == {"missing"}


def test_head_and_first_column_stay(browser: Browser, show: Show) -> None:
    browser.width(390)
    show(61)
    places = browser.run(
        """((box) => {
            box.scrollTo(300, 1000);
            const at = (one) => one.getBoundingClientRect();
            const row = box.querySelector('tbody tr:nth-child(50)');
            return [at(box.querySelector('thead')).top - at(box).top, at(row.cells[0]).left - at(box).left,
                at(row.cells[1]).left - at(box).left, box.scrollTop];
        })(document.querySelector('#origins .scroll'))"""
    )
    assert all(abs(one) <= 2 for one in places[:2])
    assert places[2] < 0 < places[3]


def test_all_by_tab_alone(browser: Browser, show: Show) -> None:
    """Every control can be reached from the keyboard, and it is seen where one is."""
    show(12)
    browser.driver.execute_script(
        "window.reached = new Set(); window.unseen = [];"
        "document.addEventListener('focusin', ({ target }) => { reached.add(target);"
        "if (getComputedStyle(target).outlineStyle === 'none') unseen.push(target.outerHTML) })"
    )
    controls = "[...document.querySelectorAll('button, input, select, summary, a')]"
    controls += ".filter((one) => one.checkVisibility())"
    count = browser.run(f"{controls}.length")
    ActionChains(browser.driver, duration=0).send_keys(
        Keys.TAB * (count + 20)
    ).perform()
    assert browser.run(f"{controls}.filter((one) => !reached.has(one)).length") == 0
    assert browser.run("unseen") == []
    browser.run("document.querySelector('.rule > summary').focus()")
    assert not browser.run("document.querySelector('.rule').open")
    ActionChains(browser.driver).send_keys(Keys.ENTER).perform()
    assert browser.run("document.querySelector('.rule').open")


def test_very_many_origins_are_shown_on_request(browser: Browser, show: Show) -> None:
    """The first 200 at first, in whatever order."""
    show(230)
    assert len(browser.column(ORIGINS, 0)) == 200
    more = browser.one("#origins .tools button")
    assert more.text == "Show all 230"
    more.click()
    assert len(browser.column(ORIGINS, 0)) == 230
    more.click()
    assert len(browser.column(ORIGINS, 0)) == 200
    assert browser.complaints() == []


def test_tables_are_saved_as_csv_and_json(
    browser: Browser, show: Show, tmp_path: Path
) -> None:
    """What the filters leave, with numbers as numbers; nothing that a spreadsheet would run."""
    evil = answer(
        "rules", 1, "=cmd()", status=200, reason='say "a, b"', about={"bytes": 1234}
    )
    browser.tell(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path)
    )
    show([*many_lines(20)[:-1], evil, ended(80)])
    browser.run(f"document.querySelector('{ORIGINS}').tHead.scrollIntoView()")

    def saved(extension: str, button: int) -> str:
        browser.one(f"#origins .tools button:nth-last-child({button})").click()
        found = tmp_path / f"origins.{extension}"
        WebDriverWait(browser.driver, 20, 0.05).until(lambda _: found.exists())
        return found.read_text("utf-8")

    rows = {row["origin"]: row for row in json.loads(saved("json", 1))}
    assert len(rows) == 21
    numbers = [rows[name]["bytes"] for name in ("=cmd()", "http://site11.example")]
    numbers += [rows["http://site2.example"][name] for name in ("forbidden", "held")]
    assert numbers == [1234, None, 3, 0]
    browser.one(f"{ORIGINS} .filters input").send_keys("cmd")
    [_, row, _] = saved("csv", 2).split("\n")
    assert row.startswith("'=cmd(),with rules,200,1234,1,")
    assert '"say ""a, b"""' in row


def test_without_scripts_all_can_be_read(browser: Browser, show: Show) -> None:
    """And there is no control that does nothing."""
    browser.scripts(run=False)
    show(230)
    cells = browser.driver.find_elements("css selector", f"{ORIGINS} tbody tr")
    assert len(cells) == 230
    assert cells[-1].is_displayed()
    assert browser.driver.find_elements("css selector", "button, input, select") == []


def test_a_print_has_all_rows_and_a_head_on_each_page(
    browser: Browser, show: Show
) -> None:
    """Light, whatever the screen is, and without what only a screen can do."""
    browser.prefer("dark")
    show(120)
    pages = browser.printed()
    every = {f"http://site{n}.example" for n in range(120)}
    assert every <= {word for page in pages for word in page.split()}
    heads = "origin robots.txt status bytes fetches allowed forbidden share"
    of_origins = [page for page in pages if "with rules 200" in page]
    assert len(of_origins) > 1
    assert all(heads in page for page in of_origins)
    assert not any("CSV" in page for page in pages)
    browser.prefer("dark", "print")
    assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert (
        browser.run("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )


@pytest.mark.parametrize("seconds", [30, 299, 200_000])
def test_bars_and_ticks_are_on_one_axis(
    browser: Browser, show: Show, seconds: int
) -> None:
    """A bar that begins at a tick's time begins below that tick."""
    at = seconds * data_of(started(), ended(seconds)).crawl.axis.ticks[2][0] / 100
    site = "http://a.example"
    failure = answer("unreachable", at + 0.2, site, status=503)  # asked 0.2 s before
    show([started(), failure, line("held", at + 0.2, site), ended(seconds)])
    tick, bar = browser.run(
        """[...document.querySelectorAll('#unreachable-table thead text')].slice(2, 3).concat(
            [...document.querySelectorAll('#unreachable-table tbody:last-child rect')])
            .map((one) => one.getBoundingClientRect()).map((r, n) => n ? r.left : r.left + r.width / 2)"""
    )
    assert abs(tick - bar) < 1.5


def test_the_policy_blocks_what_got_through(browser: Browser, show: Show) -> None:
    """Nothing does; if it did, it could load and run nothing."""
    show(30, rule=HOSTILE, url=HOSTILE, error=HOSTILE, origin=HOSTILE)
    assert browser.driver.title != "gone"
    assert HOSTILE in browser.one(".rule code").text
    assert browser.complaints() == []
    path = show(
        3, b"<script>document.title='gone'</script><img src='http://127.0.0.1:9/x'>"
    )
    assert browser.driver.title != "gone"
    assert len(browser.complaints()) == 2
    assert set(browser.requested()) == {path.as_uri()}
