"""Any row of `rep-held.sqlite` is a request, or skipped. (Its pickle can do anything: SECURITY.md.)"""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.strategies import columns
from tests.holding.holds import INF, SPIDER, A, B, held, numbers, opened, read_all

pytestmark = pytest.mark.slow
GOOD = held(1).request
SEED = pickle.dumps(GOOD.to_dict(spider=SPIDER), pickle.HIGHEST_PROTOCOL)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "rep-held.sqlite"


COLUMNS = columns(st.just(SEED) | st.binary())
# Origin, since, state, request, priority, fingerprint; earlier runs' time; the highest id.
SOUND = [("?", value) for value in (A, 1.0, 0, SEED, 5, 7, 1.0, 2)]


@settings(max_examples=settings.default.max_examples // 4)
@given(st.lists(COLUMNS, min_size=8, max_size=8), st.integers(2, 2**63 - 1))
@example([("CAST(? AS TEXT)", b"\x80"), *SOUND[1:]], 2)
@example([SOUND[0], ("?", 9e999), *SOUND[2:]], 2)
@example([*SOUND[:4], ("?", -(2**63)), *SOUND[5:]], 2)
@example([*SOUND[:5], ("?", -(2**63)), *SOUND[6:]], 2)
@example([*SOUND[:6], ("?", b"x"), SOUND[7]], 2)
@example([*SOUND[:7], ("?", 2**63 - 1)], 2)
def test_columns_of_any_kind(
    file: Path, columns: list[tuple[str, Any]], row: int
) -> None:
    """The good row is recovered, and more can be held."""
    opened(file).close()
    kinds = [kind for kind, _ in columns]
    values = [value for _, value in columns]
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript(
            "DELETE FROM held; DELETE FROM clock; DELETE FROM sqlite_sequence"
        )
        good = (A, 1.0, 0, SEED, 9, 7)
        db.execute("INSERT INTO held VALUES (1, ?, ?, ?, ?, ?, ?)", good)
        query = f"INSERT INTO held VALUES ({row}, {', '.join(kinds[:6])})"  # noqa: S608 (of COLUMNS)
        db.execute(query, values[:6])
        db.execute(f"INSERT INTO clock VALUES (1, {kinds[6]})", values[6:7])  # noqa: S608 (the same)
        db.execute(f"UPDATE sqlite_sequence SET seq = {kinds[7]}", values[7:])  # noqa: S608 (the same)
    hold = opened(file)
    try:
        recovered = {
            origin: read_all(hold, heap) for origin, heap in hold.recovered.items()
        }
        assert GOOD.url in [one.request.url for one in recovered[A]]
        assert 0 <= hold.ran_before < INF
        new = hold.hold(B, held(3))
        assert new.row is not None and hold.has(new.row)
        assert numbers(read_all(hold, [new])) == [3]
    finally:
        hold.close()
