"""A headless Chromium that looks at pages on disk. It has no network but what it is told to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="there is no Chromium: install Debian's packages chromium and chromium-driver",
)

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
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_script_timeout(150)  # the layout of 10,000 rows is part of a script

    def open(self, path: Path) -> None:
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """What a JavaScript expression is."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.one(selector).text)

    def column(self, table: str, number: int) -> list[str]:
        """The cells of a column that are on display, from the top."""
        script = """[...document.querySelector(arguments[0]).tBodies[0].rows]
            .filter((row) => row.offsetParent !== null)
            .map((row) => row.cells[arguments[1]].textContent)"""
        found = self.run(script, table, number)
        assert isinstance(found, list)
        return found

    def prefer(self, scheme: str) -> None:
        """Light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def pdf(self) -> str:
        """The page as it is printed, in base64."""
        return str(self.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])

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

    def close(self) -> None:
        self.driver.quit()
