"""A headless Chromium that looks at pages on disk. It has no network but what it is told to."""

from __future__ import annotations

import base64
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium: install Debian's packages chromium and chromium-driver",
)
needs_axe = pytest.mark.skipif(
    find_spec("axe_playwright_python") is None,
    reason="there is no axe-core: pip install axe-playwright-python",
)

_AXE = """
const done = arguments[arguments.length - 1];
axe.run().then((found) => done(found.violations.map((one) => [one.id, one.nodes[0].html])))
"""
_FLAGS = """
--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync --disable-extensions
--disable-default-apps --no-proxy-server --host-resolver-rules=MAP*~NOTFOUND --window-size=1200,900
"""


class Browser:
    """One window."""

    def __init__(self, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in _FLAGS.split():
            options.add_argument(flag.replace("~", " ").replace("MAP*", "MAP *"))
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability(
            "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
        )
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_script_timeout(
            150
        )  # the layout of 10,000 rows is part of a script

    def tell(self, command: str, **about: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, about)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a JavaScript expression is."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def column(self, table: str, number: int) -> list[str]:
        """The cells of a column that are on display, from the top."""
        script = """[...document.querySelector(arguments[0]).tBodies[0].rows]
            .filter((row) => row.offsetParent !== null)
            .map((row) => row.cells[arguments[1]].textContent)"""
        found = self.run(script, table, number)
        assert isinstance(found, list)
        return found

    def prefer(self, scheme: str, media: str = "") -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", features=features, media=media)

    def width(self, pixels: int) -> None:
        """Of the window. 0: as it was."""
        if pixels:
            size = {
                "width": pixels,
                "height": 900,
                "deviceScaleFactor": 1,
                "mobile": pixels < 500,
            }
            self.tell("Emulation.setDeviceMetricsOverride", **size)
        else:
            self.tell("Emulation.clearDeviceMetricsOverride")

    def scripts(self, *, run: bool) -> None:
        """Whether the page's scripts run from now on."""
        self.tell("Emulation.setScriptExecutionDisabled", value=not run)

    def printed(self) -> list[str]:
        """The text of each page of the print."""
        pdfium = pytest.importorskip("pypdfium2", reason="needs pypdfium2")
        data = base64.b64decode(self.tell("Page.printToPDF")["data"])
        with pdfium.PdfDocument(data) as document:
            return [
                " ".join(page.get_textpage().get_text_bounded().split())
                for page in document
            ]

    def violations(self) -> Any:
        """What axe-core finds wrong, with an example of each."""
        from axe_playwright_python.base import AXE_FILE_PATH

        script = Path(AXE_FILE_PATH).read_text("utf-8")
        self.tell(
            "Runtime.evaluate", expression=script
        )  # the page's policy is for others
        return self.driver.execute_async_script(_AXE)

    def complaints(self) -> list[str]:
        """What the console has to say: errors of scripts, what the page's policy forbids."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """URLs of everything that was asked for; not of what the page's policy kept back."""
        urls, blocked = {}, set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            about = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                urls[about["requestId"]] = about["request"]["url"]
            elif about.get("blockedReason") == "csp":
                blocked.add(about["requestId"])
        return [url for key, url in urls.items() if key not in blocked]
