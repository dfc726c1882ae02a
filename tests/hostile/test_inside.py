"""What a public site names never leads inside, though its name server says one thing to the check and
another to the connection (SECURITY.md). In a network of its own, with public addresses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.process import (
    REACTORLESS_LIBRARY,
    REACTORS,
    SPIDER,
    arguments_of,
    environment,
)

pytestmark = [pytest.mark.process, pytest.mark.slow]

_UNSHARE = ["unshare", "--net", "--mount"]

# What every one of these sites leads to, but for the rule.
SITES = ("public-1", "public-2", "public-3", "dual-1", "changes-4")

SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_rep.Addon": 300},
    "USER_AGENT": "testbot/1.0",
    "REP_SITEMAPS": True,
    "REP_SITEMAP_CROSS_HOST": "any",
    # Asks again: each name has its second answer by then.
    "REP_RETRY_DELAY": 0.2,
    "REP_RETRY_MAX_DELAY": 0.4,
    "REP_DEFER_MAX_WAIT": 3,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


@cache
def why_not() -> str:
    """Why a network of one's own can't be made here; "" if it can."""
    if not all(map(shutil.which, ("unshare", "ip", "mount"))):
        return "needs unshare, ip and mount"
    done = subprocess.run(
        [*_UNSHARE, "ip", "link", "show"], check=False, capture_output=True, text=True
    )
    return "" if done.returncode == 0 else f"may not make a network of its own: {done.stderr}"


def run_all(folder: Path) -> tuple[list[str], dict[str, str]]:
    """What was asked for inside, and the output of each command."""
    commands = commands_in(folder)
    file = folder / "commands.json"
    file.write_text(json.dumps(list(commands.values())))
    module = "tests.hostile.inside"
    done = subprocess.run(
        [*_UNSHARE, sys.executable, "-m", module, str(file)],
        env=environment(no_proxy="localhost", ftp_proxy="http://proxy.test:3128/",
                        CRAWL_EVENTS=str(folder / "events")),
        cwd=folder, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["inside"], dict(zip(commands, found["output"], strict=True))


def commands_in(folder: Path) -> dict[str, list[str]]:
    """By the last part of the names that each asks for."""
    # Twisted's cache would hide second answers.
    crawls = {"uncached": {**SETTINGS, "DNSCACHE_ENABLED": False}}
    if find_spec(REACTORLESS_LIBRARY):
        crawls["none"] = {**SETTINGS, **REACTORS["none"]}
    # All answer in the end, on a slow machine later.
    allowed = {"REP_PRIVATE_HOSTS": True, "REP_DEFER_MAX_WAIT": 60}
    crawls["allowed"] = {**crawls["uncached"], **allowed}
    found = {}
    for name, settings in crawls.items():
        urls = folder / f"{name}.urls"
        urls.write_text("\n".join(f"http://{site}.{name}.test/start" for site in SITES))
        spider = "runspider", str(SPIDER), "-a", f"urls={urls}", "-a", "seeded=yes"
        found[name] = arguments_of(*spider, settings=settings)
    for name, options in {"page": ["--page"], "sitemaps": ["--sitemaps"]}.items():
        sites = ("public-4", "public-5") if options == ["--page"] else SITES
        wanted = [f"http://{site}.{name}.test/page" for site in sites]
        found[name] = arguments_of("robots", *options, *wanted, settings=SETTINGS)
    return found


def test_public_sites_never_lead_inside(tmp_path: Path) -> None:
    """All at once: most of their time is that of processes that start."""
    if reason := why_not():
        pytest.skip(reason)
    inside, output = run_all(tmp_path)
    for name in output.keys() - {"allowed"}:
        assert [one for one in inside if f"{name}.test" in one] == []
        assert "Traceback" not in output[name]
    page = output["page"]
    assert "127.0.0.1/page.test/page: not read: its host has a private address" in page
    assert "not read: fails-5.page.test can't be resolved" in page
    # They do if the user lets them, and so would the others, but for the rule. Only a check makes the
    # other names change in time.
    assert {one for one in inside if "allowed.test" in one} >= {
        "127.0.0.1/allowed.test/latest/meta",
        "fails-1.allowed.test/latest/meta",
        "fails-2.allowed.test/sm",
        "fails-3.allowed.test/page",
        "changes-4.allowed.test:8080/latest/meta",
    }
