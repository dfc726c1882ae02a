"""What Scrapy leaves behind when a request fails."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from scrapy import Request

from scrapy_rep.engine.access import EngineAccess

# At most this many failures are kept until the engine is done with them. Usually there
# are no more than requests in progress.
_MOST_FAILURES = 100
# The modules that pass on what a request fails with.
_PASSING_MODULES = ("scrapy.", "scrapy_rep.", "twisted.")


class PastFailures:
    """Frees what failed requests have left behind, without the garbage collector.

    Scrapy and Twisted pass an exception from function to function, and some of their
    frames refer to it. Its traceback refers to these frames. So there are reference
    cycles of some 90 objects for each request that fails, the request among them. If
    most requests of a crawl are refused, the garbage collector takes a quarter of the
    crawl's CPU time. Without the traceback and the frames' local variables, nearly all
    of these objects are freed at once. A traceback that leads through the project's own
    functions stays, though, since the project may keep the exception.
    """

    def __init__(self, engine: EngineAccess) -> None:
        self._engine = engine
        self._failures: deque[tuple[Request, Exception]] = deque(maxlen=_MOST_FAILURES)
        """Requests that the engine may not be done with, each with what it fails
        with."""

    def add(self, request: Request, error: Exception) -> None:
        """Note that *request*, which the engine has taken from the scheduler, is about
        to fail with *error*, and free what failures that are over have left behind.
        Failures of requests with an errback are left alone, since the project may look
        at them later."""
        failures = self._failures
        while failures:
            past_request, past_error = failures[0]
            if self._engine.is_in_progress(past_request):
                break
            failures.popleft()
            _free(past_error)
        if not self._engine.has_errback(request):
            failures.append((request, error))


def _free(error: Exception) -> None:
    """Free the local variables of the functions that passed *error* on, and drop its
    traceback. If a function of the project's passed it on, its variables and the
    traceback stay."""
    has_project_frame = False
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        trace = trace.tb_next
        module = str(frame.f_globals.get("__name__"))  # exec() may run without one
        if module.startswith(_PASSING_MODULES):
            with suppress(RuntimeError):  # it still runs
                frame.clear()
        else:
            has_project_frame = True
    if not has_project_frame:
        error.with_traceback(None)
