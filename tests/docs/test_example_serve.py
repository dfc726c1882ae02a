"""`python3 example_project/run.py serve` keeps the example's sites up, where the manual has them."""

from __future__ import annotations

import importlib
import re
import time
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.docs.examples import EXAMPLE

open_url = build_opener(ProxyHandler({})).open


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("EXAMPLE_SITES", raising=False)
    return importlib.import_module("example.sites")


@pytest.mark.slow
def test_sites_stay_up_until_ctrl_c(
    sites: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, last = "", list[bytes]()
    sleep = time.sleep

    def look(seconds: float) -> None:
        nonlocal printed
        if seconds < 1e6:
            return sleep(seconds)  # a slow site
        printed = capsys.readouterr().out
        for address in re.findall(
            r"^(http://127\.\S+) +(?:plain|longest)", printed, re.MULTILINE
        ):
            with open_url(f"{address}/robots.txt") as answer:
                last.append(answer.read().splitlines()[-1])
        raise KeyboardInterrupt

    program = importlib.import_module("run")
    monkeypatch.setattr(program, "install", lambda: None)
    monkeypatch.setattr(sites.time, "sleep", look)
    program.main(["serve"])
    assert "activate" in printed
    assert len(re.findall(r"^http://127\.", printed, re.MULTILINE)) == len(sites.SITES)
    assert last == [b"Disallow: /private", b"Allow: /shop/open/"]


def test_other_addresses_than_the_manuals_are_told(
    sites: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has 127.0.0.1 alone."""
    usual = {name: sites.address(name) for name in sites.SITES}
    assert "manual" not in sites.directory(usual)
    server = sites.Server

    def only_one(where: tuple[str, int], *args: Any) -> Any:
        if where[0] != "127.0.0.1":
            raise OSError("Can't assign requested address")
        return server(where, *args)

    monkeypatch.setattr(sites, "Server", only_one)
    with sites.serving(port=0) as places:
        said = sites.directory(places)
        assert len({*places.values()}) == len(sites.SITES)
        for name, place in places.items():
            assert f"{usual[name]:24} is {place}\n" in said
            with open_url(f"{place}/robots.txt?") as answer:
                assert answer.status == 200
    monkeypatch.setenv("EXAMPLE_SITES", re.findall(r"EXAMPLE_SITES='(.+)'", said)[0])
    assert {name: sites.address(name) for name in sites.SITES} == places
