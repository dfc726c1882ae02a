"""The recipe for fleets: `python3 example_project/run.py fleet`, without its own environment."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.process import environment
from tests.helpers.redisserver import needs_server

EXAMPLE = Path(__file__).resolve().parents[2] / "example_project"
pytest.importorskip("scrapy_redis", reason="needs scrapy-redis, from PyPI")
pytestmark = pytest.mark.process


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module; it writes its logs elsewhere."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    module = importlib.import_module("fleet")
    monkeypatch.setattr(
        module, "log_of", lambda number: tmp_path / f"fleet-{number}.log"
    )
    return module


@pytest.fixture
def run(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("run")
    monkeypatch.setattr(module, "PYTHON", sys.executable)
    monkeypatch.setattr(module, "install", lambda: None)
    monkeypatch.setattr(module, "install_for_fleet", lambda: None)
    return module


@needs_server
def test_each_robots_txt_is_asked_for_once(
    run: Any,
    fleet: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[Any] = []
    show = fleet.show
    monkeypatch.setattr(fleet, "show", lambda *args: (shown.append(args), show(*args)))
    run.main(["fleet", "-s", "REP_RETRY_DELAY=0.2", "-s", "DOWNLOAD_DELAY=0"])
    ((found, asked),) = shown
    from example.sites import SITES
    from example.spiders.s09_fleet import NAMES, PAGES

    assert {name: asked[name] for name in NAMES} == {
        **dict.fromkeys(NAMES, 1),
        "recovers": 4,
    }
    # Every page once, by whomever, and the same verdicts as one crawler alone comes to. A link that fresh rules
    # forbid doesn't get to the queue that they share, so each of them may refuse it.
    every = {(name, page) for name in NAMES for page in (*PAGES, *SITES[name].links)}
    dropped = {(one.site, one.page) for one in found if one.dropped}
    fetched = [(one.site, one.page) for one in found if not one.dropped]
    assert sorted(fetched) == sorted(every - dropped)
    assert dropped == {
        ("plain", "/private"),
        ("groups", "/drafts"),
        ("longest", "/shop/staff"),
        ("wildcards", "/a.pdf"),
        ("wildcards", "/b?session=1"),
        ("typos", "/secret"),
        ("typos", "/hidden"),
        ("slow", "/private"),
        ("recovers", "/private"),
    }
    table = capsys.readouterr().out
    assert "recovers   4 times" in table
    assert "line 3: Disallow: /private" in table
    assert max(map(len, table.splitlines())) <= 120


def test_without_a_redis_server_there_is_a_sentence(
    run: Any, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="needs redis-server, which is not installed"):
        run.main(["fleet"])
