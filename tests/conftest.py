"""How the tests run: on which reactor, and against which servers.

    pytest --reactor=asyncio    Scrapy's default, the asyncio reactor of Twisted
    pytest --reactor=default    the default (non-asyncio) reactor of Twisted
    pytest -p no:twisted        no reactor: Scrapy's TWISTED_REACTOR_ENABLED = False

An `async def` test runs as Scrapy itself would run a coroutine there. Tests that cannot work
without a Twisted reactor carry `@pytest.mark.needs_reactor` and are skipped in the last mode.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from scrapy.core.engine import ExecutionEngine

from tests import names
from tests.servers import LoopThread, Sites
from tests.tls import server_context


def without_reactor(config: pytest.Config) -> bool:
    return not config.pluginmanager.hasplugin("twisted")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_reactor: cannot work without a Twisted reactor")
    # Twisted before 22.10, on Python 3.10.
    config.addinivalue_line(
        "filterwarnings", r"ignore:currentThread\(\) is deprecated:DeprecationWarning"
    )
    # pygal leaves a finder for its plugins behind, of a kind that is no longer asked.
    config.addinivalue_line("filterwarnings", "ignore:PluginImportFixer:ImportWarning")
    if without_reactor(config):
        from scrapy.utils.reactorless import install_reactor_import_hook

        # Whatever imports the reactor would install it, and end this mode.
        config.add_cleanup(_uninstaller(install_reactor_import_hook()))


def _uninstaller(hook: Any) -> Any:
    from scrapy.utils.reactorless import uninstall_reactor_import_hook

    return lambda: uninstall_reactor_import_hook(hook)


def pytest_report_header(config: pytest.Config) -> str:
    import scrapy

    mode = "no reactor" if without_reactor(config) else f"{config.getoption('reactor')} reactor"
    return f"scrapy {scrapy.__version__}, {mode}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if without_reactor(config):
        for item in items:
            if marker := item.get_closest_marker("needs_reactor"):
                why = marker.kwargs.get("reason", "cannot work without a Twisted reactor")
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests; leave the others to pytest."""
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
    reactor.callLater(0, lambda: deferred_from_coro(function(**kwargs)).chainDeferred(done))
    pytest_twisted.blockon(done)
    return True


@pytest.fixture(scope="session", autouse=True)
def quick_engine() -> Iterator[None]:
    """The engine looks every 50 ms instead of every 5 s whether a crawl is over."""
    # What is there by now stays: each crawl collects garbage, see tests.crawling.
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", 0.05)
        # Older Scrapy pauses for 100 ms around each callback.
        patch.setattr("scrapy.utils.defer._DEFER_DELAY", 0.001, raising=False)
        yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def loopback_names(request: pytest.FixtureRequest) -> Iterator[None]:
    """No name is looked up outside this process, see `tests.names`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", names.getaddrinfo)
        if not without_reactor(request.config):
            names.install_reactor_resolver()
        yield


@pytest.fixture(scope="session", autouse=True)
def twisted_log() -> Iterator[None]:
    """What Twisted logs (unhandled errors) goes to Python's logging, as under Scrapy."""
    from twisted.python.log import PythonLoggingObserver

    observer = PythonLoggingObserver("twisted")
    observer.start()
    yield
    observer.stop()


@pytest.fixture(scope="session")
def sites_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def tls_context(tmp_path_factory: pytest.TempPathFactory) -> Any:
    context: list[Any] = []

    def once() -> Any:
        if not context:
            context.append(server_context(tmp_path_factory.mktemp("tls")))
        return context[0]

    return once


@pytest.fixture
def sites(sites_thread: LoopThread, tls_context: Any) -> Iterator[Sites]:
    """`sites.add(robots=..., pages=...)` makes a site, see `tests.servers`."""
    some = Sites(sites_thread, tls_context)
    yield some
    some.close()
