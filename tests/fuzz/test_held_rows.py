"""Rows of `rep-held.sqlite`, whatever is in them: a request, or one that is skipped."""

from __future__ import annotations

import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy import Request

from scrapy_rep.holding.disk import dumps, loads
from tests.fuzz.strategies import damaged
from tests.helpers.timing import in_a_slice
from tests.holding.holds import INF, SPIDER, A, B, held, numbers, on_disk, opened, read_all
from tests.protocol.strategies import any_text

pytestmark = pytest.mark.slow

REQUESTS = [
    Request("http://a.example/é?b=%ff"),
    Request(
        "http://a.example/",
        method="POST",
        body=b"\x00\xff{}",
        headers={"X-One": ["1", b"\xff"]},
        cookies={"a": "b"},
        meta={"a": [{"b": [1.5, "é\u2028\x00", None, True, 10**30]}]},
        callback=SPIDER.parse,
        errback=SPIDER.failed,
    ),
]
GOOD = held(1).request
SEEDS = [dumps(request, SPIDER) for request in REQUESTS]
# Other pickles than ours, or damaged ones, can do anything: see hold.py.
PICKLES = [
    pickle.dumps(request.to_dict(spider=SPIDER), protocol)
    for request in REQUESTS
    for protocol in (2, pickle.HIGHEST_PROTOCOL)
]
ROWS = damaged(
    SEEDS,
    [
        *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"0", b"1e999", b"NaN", b"9" * 5000),
        *(b'"url":', b'"_class":', b'"callback":', b'"headers":', b'"body":', b'"meta":', b'"x"'),
        *(b'"scrapy.http.FormRequest"', b'"os.getcwd"', b'"x.y"', b'"parse"', b'"__class__"'),
        *(b"\\ud800", b"\\u0000", b"\xff", b"\0", b"\xef\xbb\xbf", b'"http://b.example/"', b'"data:,x"'),
    ],
    100_000,
) | st.tuples(st.sampled_from(PICKLES), st.integers(0, 2000)).map(lambda cut: cut[0][: cut[1]])  # fmt: skip


def fields_of(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.attributes}


def assert_usable(data: bytes) -> None:
    try:
        request = in_a_slice(lambda: loads(data, SPIDER))
    except Exception:  # noqa: BLE001 (the hold skips it, whatever it is)
        return
    assert isinstance(request, Request)
    again = loads(dumps(request, SPIDER), SPIDER)
    assert repr(fields_of(again)) == repr(fields_of(request))


@given(ROWS)
def test_requests_of_any_kind(data: bytes) -> None:
    assert_usable(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda some: st.lists(some, max_size=4) | st.dictionaries(any_text, some, max_size=4),
    max_leaves=8,
)
VALUES = st.dictionaries(st.sampled_from([*json.loads(SEEDS[0]), "x"]), JSON, max_size=3)


@given(VALUES, st.dictionaries(any_text, JSON, max_size=3), any_text, st.binary(max_size=20))
def test_requests_come_back_as_they_were(
    values: dict[str, Any], meta: dict[str, Any], text: str, body: bytes
) -> None:
    request = Request("http://a.example/", meta=meta, cb_kwargs={"x": text}, body=body)
    again = loads(dumps(request, SPIDER), SPIDER)
    assert repr(fields_of(again)) == repr(fields_of(request))
    assert_usable(json.dumps({**json.loads(SEEDS[0]), **values}).encode())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "rep-held.sqlite"


COLUMNS = st.tuples(
    st.sampled_from(["?", "CAST(? AS TEXT)", "CAST(? AS BLOB)"]),
    ROWS | st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1),
)


# Origin, number, since, state, request, priority, fingerprint; how long earlier runs took; the highest
# id.
SOUND = [("?", value) for value in (A, 2, 1.0, 0, SEEDS[0], 5, 7, 1.0, 2)]


@settings(max_examples=settings.default.max_examples // 4)
@given(st.lists(COLUMNS, min_size=9, max_size=9), st.integers(2, 2**63 - 1))
@example([("CAST(? AS TEXT)", b"\x80"), *SOUND[1:]], 2)
@example([SOUND[0], ("?", 2**63 - 1), *SOUND[2:]], 2)
@example([*SOUND[:2], ("?", 9e999), *SOUND[3:]], 2)
@example([*SOUND[:5], ("?", -(2**63)), *SOUND[6:]], 2)
@example([*SOUND[:6], ("?", -(2**63)), *SOUND[7:]], 2)
@example([*SOUND[:7], ("?", b"x"), SOUND[8]], 2)
@example([*SOUND[:8], ("?", 2**63 - 1)], 2)
def test_columns_of_any_kind(file: Path, columns: list[tuple[str, Any]], row: int) -> None:
    """SQLite keeps anything in any column, text that is no UTF-8 too. The good row is recovered, and
    more can be held."""
    opened(file).close()
    kinds = [kind for kind, _ in columns]
    values = [value for _, value in columns]
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.executescript("DELETE FROM held; DELETE FROM clock; DELETE FROM sqlite_sequence")
        good = (A, 1, 1.0, 0, dumps(GOOD, SPIDER), 9, 7)
        db.execute("INSERT INTO held VALUES (1, ?, ?, ?, ?, ?, ?, ?)", good)
        query = f"INSERT INTO held VALUES ({row}, {', '.join(kinds[:7])})"  # noqa: S608 (of COLUMNS)
        db.execute(query, values[:7])
        db.execute(f"INSERT INTO clock VALUES (1, {kinds[7]})", values[7:8])  # noqa: S608 (the same)
        db.execute(f"UPDATE sqlite_sequence SET seq = {kinds[8]}", values[8:])  # noqa: S608 (the same)
    hold = opened(file)
    try:
        recovered = {origin: read_all(hold, heap) for origin, heap in hold.recover()}
        assert GOOD.url in [one.request.url for one in recovered[A]]
        assert 0 <= hold.ran < INF
        new = on_disk(hold, B, held(hold.number + 1, hold.ran))
        assert numbers(read_all(hold, [new])) == [hold.number + 1]
        assert hold._journal.unwritten("held", hold.number + 1) is None
    finally:
        hold.close()
