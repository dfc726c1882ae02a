"""`python3 example_project/run.py serve` keeps the example's sites up, where the manual has them."""

from __future__ import annotations

import importlib
import re
import time
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.helpers.docs import EXAMPLE

open_url = build_opener(ProxyHandler({})).open


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("EXAMPLE_SITES", raising=False)
    return importlib.import_module("example.sites")


@pytest.fixture
def run(sites: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, which finds everything installed."""
    module = importlib.import_module("run")
    monkeypatch.setattr(module, "install", lambda: None)
    return module


@pytest.mark.slow
def test_sites_stay_up_until_ctrl_c(
    run: Any, sites: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []
    bodies: list[bytes] = []
    sleep = time.sleep

    def look(seconds: float) -> None:
        if seconds < 1e6:
            return sleep(seconds)  # a slow site
        printed.append(capsys.readouterr().out)
        for address in re.findall(
            r"^(http://127\.\S+) +(?:plain|longest)", printed[0], re.MULTILINE
        ):
            with open_url(f"{address}/robots.txt") as answer:
                bodies.append(answer.read())
        raise KeyboardInterrupt

    monkeypatch.setattr(sites.time, "sleep", look)
    run.main(["serve"])
    assert "activate" in printed[0]
    assert len(re.findall(r"^http://127\.", printed[0], re.MULTILINE)) == len(sites.SITES)
    assert [body.splitlines()[-1] for body in bodies] == [
        b"Disallow: /private",
        b"Allow: /shop/open/",
    ]


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
    found = re.findall(r"EXAMPLE_SITES='(.+)'", said)
    monkeypatch.setenv("EXAMPLE_SITES", found[0])
    assert {name: sites.address(name) for name in sites.SITES} == places
