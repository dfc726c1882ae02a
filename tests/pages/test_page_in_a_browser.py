"""The metas that are found are those that a browser's parser has as elements (REP.md section 10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from scrapy_rep.protocol.html import as_ascii, metas_of, with_plain_blanks
from tests.protocol.pages import HTML
from tests.reporting.report.browser import Browser, needs_chromium

pytestmark = [pytest.mark.process, needs_chromium]
NAMES = {"robots", "foobot", "foobot-image"}

# Scripts are forbidden to run, but not off: what is in <noscript> is text then.
PAGE = """<!DOCTYPE html><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="script-src 'none'; frame-src 'none'">
"""

# Each page, written into the same frame; from each the names and contents of its metas.
SCRIPT = """
const frame = document.body.appendChild(document.createElement("iframe"));
return arguments[0].map((source) => {
    const page = frame.contentDocument;
    page.open();
    page.write(source);
    page.close();
    const metas = page.getElementsByTagNameNS("http://www.w3.org/1999/xhtml", "meta");
    return [...metas].map((meta) => [meta.name, meta.content]);
});
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    page = folder / "page.html"
    page.write_text(PAGE, "utf-8")
    browser = Browser(folder / "profile")
    try:
        browser.driver.get(page.as_uri())
        yield browser
    finally:
        browser.driver.quit()


def decoded(body: bytes, encoding: str) -> str:
    body, encoding = as_ascii(body, encoding)
    try:
        return body.decode(encoding, "replace")
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")


def plain(metas: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that count. Our contents are still bytes as Latin-1: whatever looks like a blank is one."""
    return [
        (name, with_plain_blanks(content))
        for name, content in (
            (name.strip().lower(), content) for name, content in metas
        )
        if name in NAMES
    ]


def in_chromium(
    browser: Browser, bodies: list[tuple[bytes, str]]
) -> list[list[tuple[str, str]]]:
    texts = [decoded(body, encoding) for body, encoding in bodies]
    metas = [plain(one) for one in browser.driver.execute_script(SCRIPT, texts)]
    assert len(metas) == len(bodies)
    return metas


def test_the_same_metas_as_in_chromium(browser: Browser) -> None:
    cases = [(body, encoding) for rows in HTML.values() for body, encoding, _ in rows]
    differing = [
        (body, ours, theirs)
        for (body, encoding), theirs in zip(
            cases, in_chromium(browser, cases), strict=True
        )
        if (ours := plain(meta[:2] for meta in metas_of(body, encoding, NAMES)))
        != theirs
    ]
    assert differing == []
