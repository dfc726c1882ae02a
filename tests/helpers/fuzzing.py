"""Hypothesis: the same few examples in each run; with `--fuzz MINUTES` others, for so long, in each
of its tests."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = "examples tried"


def set_up(config: pytest.Config) -> None:
    """Before tests are collected: a test's settings are made when its module is imported."""
    minutes = config.getoption("fuzz")
    settings.register_profile(
        "repeatable",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=60,
        suppress_health_check=[HealthCheck.too_slow],
    )
    # A round: hypothesis remembers all examples of one, so it is not to last for ever.
    settings.register_profile(
        "search",
        database=None,
        deadline=None,
        max_examples=2000,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("search" if minutes else "repeatable")
    # Of an example that fails with a file of megabytes: it would take the failure's place.
    config.addinivalue_line("filterwarnings", "ignore:Generating overly large repr")
    if minutes:
        config.pluginmanager.register(_Rounds(60 * minutes))


class _Rounds:
    """Runs each test of hypothesis again and again, each time with other examples."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        others = [item for item in items if not _is_of_hypothesis(item)]
        items[:] = [item for item in items if _is_of_hypothesis(item)]
        config.hook.pytest_deselected(items=others)
        for item in items:  # what it finds takes a while to be made small
            item.add_marker(pytest.mark.timeout(self._seconds + 900))

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        test, tried = pyfuncitem.obj, 0
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def counted(*args: Any, **kwargs: Any) -> None:
            nonlocal tried
            tried += 1
            body(*args, **kwargs)

        test.hypothesis.inner_test = counted
        wanted = pyfuncitem._fixtureinfo.argnames
        kwargs = {name: pyfuncitem.funcargs[name] for name in wanted}
        until = time.monotonic() + self._seconds
        try:
            while time.monotonic() < until:
                test(**kwargs)
        finally:
            pyfuncitem.user_properties.append((EXAMPLES, tried))
        return True

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for reports in terminalreporter.stats.values():
            for report in reports:
                for name, value in getattr(report, "user_properties", ()):
                    if name == EXAMPLES and report.when == "call":
                        terminalreporter.write_line(f"{report.nodeid}: {value:,} {name}")


def _is_of_hypothesis(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
