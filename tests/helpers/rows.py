"""Tables whose rows share one crawl."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Row = Callable[[object], AbstractContextManager[None]]


@contextmanager
def every_row() -> Iterator[Row]:
    """`with row(name): ...` for each: one that fails does not hide the others, all are named at the end."""
    failed: list[tuple[str, str]] = []

    @contextmanager
    def row(name: object) -> Iterator[None]:
        try:
            yield
        except Exception:  # noqa: BLE001 (whatever it is: it goes into the report)
            failed.append((str(name), traceback.format_exc()))

    yield row
    if failed:
        details = "\n".join(f"--- {name}\n{text}" for name, text in failed)
        names = ", ".join(name for name, _ in failed)
        pytest.fail(f"rows that failed: {names}\n{details}", pytrace=False)
