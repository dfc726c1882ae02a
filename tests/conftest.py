"""How the tests run: on which reactor, which of them, and against which servers.

    pytest                      Scrapy's default, the asyncio reactor of Twisted: all tests
    pytest --reactor=default    the default (non-asyncio) reactor of Twisted
    pytest -p no:twisted        no reactor: Scrapy's TWISTED_REACTOR_ENABLED = False

The last two, and the oldest Scrapy, run only what can differ there: what is marked `loop`,
`download`, `scrapy_api` or `python` (setup.cfg says what each means), and of a table its first row.
`--everything` runs all tests wherever one is; `--quick` runs those that start no process
and take little time.

An `async def` test runs as Scrapy itself would run a coroutine there. Tests that cannot work
without a Twisted reactor carry `@pytest.mark.needs_reactor` and are skipped in the last mode.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import multiprocessing.util
import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from scrapy.core.engine import ExecutionEngine

from tests.helpers import crawling, names, redisserver, timing
from tests.helpers.redisserver import RedisServer
from tests.helpers.servers import LoopThread, Sites, has_addresses

OLDEST = (2, 15)
"""The oldest Scrapy that setup.cfg allows."""
NOT_QUICK = {"process", "needs_redis", "alone", "slow"}
_WHOLLY_NOT_QUICK = re.compile(
    rf"^pytestmark = (?:[^[\n]*|\[[^]]*)\bmark\.(?:{'|'.join(sorted(NOT_QUICK))})\b",
    re.MULTILINE,
)

_TESTS = itertools.count(1)
# Hypothesis: the same few examples in each run; with `--hypothesis-profile=search` many others.
_ANY_TIME: dict[str, Any] = {"database": None, "deadline": None}
settings.register_profile(
    "repeatable",
    **_ANY_TIME,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", **_ANY_TIME, max_examples=20_000, suppress_health_check=list(HealthCheck)
)
settings.load_profile("repeatable")


def without_reactor(config: pytest.Config) -> bool:
    return not config.pluginmanager.hasplugin("twisted")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("scrapy-rep")
    for option, text in {
        "--everything": "all tests, also where another mode runs them",
        "--quick": "only tests that start no process and take little time",
    }.items():
        group.addoption(option, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    # Of an example that fails with a file of megabytes: it would take the failure's place.
    config.addinivalue_line("filterwarnings", "ignore:Generating overly large repr")
    # Twisted before 22.10, on Python 3.10.
    config.addinivalue_line(
        "filterwarnings", r"ignore:currentThread\(\) is deprecated:DeprecationWarning"
    )
    if without_reactor(config):
        from scrapy.utils import reactorless

        # Whatever imports the reactor would install it, and end this mode.
        hook = reactorless.install_reactor_import_hook()
        config.add_cleanup(lambda: reactorless.uninstall_reactor_import_hook(hook))


def pytest_report_header(config: pytest.Config) -> str:
    mode = (
        "no reactor"
        if without_reactor(config)
        else f"{config.getoption('reactor')} reactor"
    )
    return f"scrapy {scrapy.__version__}, {mode}"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Crawls wait more than they work; but a worker has to import everything before it works."""
    return (os.cpu_count() or 1) * (1 if wanted_marks(config) else 2)


def wanted_marks(config: pytest.Config) -> set[str] | None:
    """Marks of tests that can end differently in this mode; None in the main one: it runs all."""
    if config.getoption("everything"):
        return None
    if without_reactor(config):
        return {"loop", "download"}
    if config.getoption("reactor") == "default":
        return {"loop"}
    return {"scrapy_api", "python"} if scrapy.version_info[:2] <= OLDEST else None


def why_not(marks: dict[str, pytest.Mark], config: pytest.Config) -> str | None:
    if without_reactor(config) and (mark := marks.get("needs_reactor")):
        return str(mark.kwargs.get("reason", "cannot work without a Twisted reactor"))
    if "process" in marks and (
        without_reactor(config) or config.getoption("reactor") == "default"
    ):
        return "the process chooses its reactor itself: run with --reactor=asyncio"
    if "linux" in marks and sys.platform != "linux":
        return "needs Linux"
    if "needs_redis" in marks and not redisserver.available:
        return redisserver.WHY_NOT
    return None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files none of whose tests run, as their marks say: in other modes, half a run's time."""
    if collection_path.suffix not in (".py", ".md"):
        return None
    text, wanted = collection_path.read_text("utf-8"), wanted_marks(config)
    if config.getoption("quick") and _WHOLLY_NOT_QUICK.search(text):
        return True
    if not wanted or re.search(rf"\bmark\.({'|'.join(wanted)})\b", text):
        return None
    return True


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[
    None, list[pytest.Collector], list[pytest.Collector]
]:
    """Doctests are in the package and the manual: looking for them here as well takes long."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    wanted, seen = wanted_marks(config), set[str]()
    chosen, others = [], []
    for item in items:
        marks = {mark.name: mark for mark in item.iter_markers()}
        left_out = config.getoption("quick") and marks.keys() & NOT_QUICK
        if (
            wanted is not None
        ):  # only what can differ; rows of a table differ in data alone
            function = item.nodeid.partition("[")[0]
            left_out = left_out or function in seen or not marks.keys() & wanted
            seen |= {function} if marks.keys() & wanted else set()
        (others if left_out else chosen).append(item)
        if why := why_not(marks, config):
            item.add_marker(pytest.mark.skip(reason=why))
    # These run first, in one worker, while the others idle; the rest can be shared by all.
    items[:] = sorted(chosen, key=lambda item: not is_alone(item))
    config.hook.pytest_deselected(items=others)


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Before pytest-timeout's own wrapper: the time that a test waits for its turn is not its."""
    with timing.turn(item.config.rootpath, alone=is_alone(item)):
        result = yield
    if next(_TESTS) % 25 == 0:
        keep_what_is_there()
    return result


def keep_what_is_there() -> None:
    """Crawls collect garbage: skipping what is there already saves a quarter of a quick run."""
    gc.collect()
    if hasattr(gc, "freeze"):  # PyPy's has none
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """A worker sends its reports as UTF-8, and logs of hostile input hold lone surrogates."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return type(value)(_encodable(one) for one in value)
    if isinstance(value, dict):
        return {key: _encodable(one) for key, one in value.items()}
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    kwargs = {name: pyfuncitem.funcargs[name] for name in wanted}
    if without_reactor(pyfuncitem.config):
        asyncio.run(function(**kwargs))
        return True
    import pytest_twisted
    from scrapy.utils.defer import deferred_from_coro
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred

    done: Deferred[Any] = Deferred()
    # From inside the reactor, so that with asyncio its loop is the running one.
    reactor.callLater(
        0, lambda: deferred_from_coro(function(**kwargs)).chainDeferred(done)
    )
    pytest_twisted.blockon(done)
    return True


def refuse(*args: Any, **kwargs: Any) -> None:
    pytest.fail("starts a process: mark it `process`")


@pytest.fixture(scope="session", autouse=True)
def surroundings(request: pytest.FixtureRequest) -> Iterator[None]:
    from twisted.python.log import PythonLoggingObserver

    keep_what_is_there()
    # What Twisted logs (unhandled errors) goes to Python's logging, as under Scrapy.
    observer = PythonLoggingObserver("twisted")
    observer.start()
    with pytest.MonkeyPatch.context() as patch:
        # The engine looks every 50 ms instead of every 5 s whether a crawl is over.
        patch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", 0.05)
        # Older Scrapy pauses for 100 ms around each callback.
        patch.setattr("scrapy.utils.defer._DEFER_DELAY", 0.001, raising=False)
        # No name is looked up outside this process, see `tests.helpers.names`.
        patch.setattr(socket, "getaddrinfo", names.getaddrinfo)
        if not without_reactor(request.config):
            from twisted.internet import reactor
            from twisted.internet._resolver import GAIResolver

            reactor.installNameResolver(
                GAIResolver(reactor, getaddrinfo=names.getaddrinfo)
            )
        if request.config.getoption("quick"):  # starts no process
            patch.setattr(subprocess.Popen, "__init__", refuse)
            patch.setattr(multiprocessing.util, "spawnv_passfds", refuse)
        yield
    observer.stop()
    if hasattr(gc, "unfreeze"):
        gc.unfreeze()


@pytest.fixture
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """First answers are waited for, however slow the machine is: nothing is held for their sake."""
    monkeypatch.setitem(crawling.SETTINGS, "_REP_HOLD_GRACE", 30.0)


@pytest.fixture(scope="session")
def sites_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture
def sites(sites_thread: LoopThread) -> Iterator[Sites]:
    """`sites.add(robots=..., pages=...)` makes a site, see `tests.helpers.servers`."""
    if not has_addresses():
        pytest.skip(
            "127.0.0.1 is this system's only loopback address; each site needs its own"
        )
    some = Sites(sites_thread)
    yield some
    some.close()


@pytest.fixture(scope="session")
def ftp_site() -> Iterator[Any]:
    """`ftp_site.serve(folder)` serves a folder by FTP, see `tests.helpers.ftp`."""
    from tests.helpers.ftp import FtpSite  # few tests need pyftpdlib

    site = FtpSite()
    yield site
    site.close()


@pytest.fixture(scope="session")
def redis_of_this_worker(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RedisServer]:
    """Use `redis_server`: this one is not empty."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def redis_server(redis_of_this_worker: RedisServer) -> RedisServer:
    """A Redis server with nothing in it. Mark what asks for it with `needs_server`."""
    redis_of_this_worker.flush()
    return redis_of_this_worker
