"""What storages hand over, whatever it is: an entry as any other, or an `UnreadableEntry`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy.http import Headers
from scrapy.settings import Settings

from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.cache import RobotsCache, usable_until
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome, outcome_of
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, SqliteStorage, UnreadableEntry
from scrapy_rep.storages.base import MAX_TIME, SCHEMA, squeeze
from scrapy_rep.text import iso
from tests.fuzz.strategies import columns, damaged
from tests.helpers.storing import KINDS, NOW, A, learn
from tests.helpers.timing import in_a_slice

pytestmark = pytest.mark.slow
HEADERS = damaged(
    [entry.header().encode() for entry in KINDS.values()],
    [
        *(f'"{one.name}":'.encode() for one in fields(Entry)),
        *(
            b"0",
            b"-1",
            b"1e999",
            b"NaN",
            b"9" * 5000,
            b"0.5",
            b"null",
            b"true",
            b'""',
            b'"x"',
        ),
        *(
            b"[",
            b"]",
            b"{",
            b"}",
            b'"',
            b",",
            b"\\u0000",
            b"\\ud800",
            b"\xff",
            b"\xef\xbb\xbf",
        ),
        *(b'"rules"', b'"schema":', b"2", b'"unreachable"'),
    ],
)
PACKED = [entry.packed for entry in KINDS.values() if entry.packed]
BOMB = squeeze(b"\0" * 3_000_000)
BODIES = damaged([*PACKED, BOMB], [b"\0", b"\0\0\xff\xff", b"\xff"])
WHOLE = damaged(
    [entry.pack() for entry in KINDS.values()], [b"\0", b"\1", b"\2", b"\xff" * 4]
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | BODIES
    | HEADERS
)


def assert_usable(entry: Entry) -> None:
    for one in (
        entry.updated_at,
        entry.fetched_at,
        entry.fresh_until,
        entry.next_attempt_at,
    ):
        assert one is None or 0 <= one <= MAX_TIME
        assert one is None or iso(one)
    until = usable_until(entry, NOW, RepSettings())
    assert 0 <= until <= MAX_TIME
    assert len(entry.body) < 2_000_000
    assert Entry.unpack(entry.pack()) == entry


def check(read: Callable[[], Any], origin: str | None = None) -> None:
    """An entry that can be used, or an error that says in short what is wrong."""

    def checked() -> Any:
        found = read()
        return (
            found.check(origin or found.origin) if isinstance(found, Entry) else found
        )

    try:
        found = in_a_slice(checked)
    except UnreadableEntry as error:
        assert str(error).startswith(("broken: ", "of the form "))
        assert len(str(error)) < 300
        return
    if isinstance(found, Entry):
        assert_usable(found)


@given(HEADERS | VALUES, BODIES | VALUES)
def test_parts_of_any_kind(header: Any, packed: Any) -> None:
    parts = [(header, packed)]
    if isinstance(header, bytes):
        parts += [
            (header.decode("utf-8", "surrogateescape"), packed),
            (header, PACKED[0]),
        ]
    for one in parts:
        check(lambda one=one: Entry.from_parts(*one))


def packed_with(header: bytes, body: bytes) -> bytes:
    squeezed = squeeze(header)
    return bytes([SCHEMA]) + len(squeezed).to_bytes(4, "big") + squeezed + body


@given(WHOLE | st.builds(packed_with, HEADERS, BODIES))
def test_packed_ones_of_any_kind(data: bytes) -> None:
    check(lambda: Entry.unpack(data), A)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "robots.sqlite"
    storage = SqliteStorage(path)
    storage.save(KINDS["rules"])
    storage.close()
    return path


COLUMNS = columns(HEADERS | BODIES)


@settings(max_examples=settings.default.max_examples // 2)
@given(COLUMNS, COLUMNS, st.booleans())
def test_rows_of_any_kind(
    database: Path, header: tuple[str, Any], packed: tuple[str, Any], proper: bool
) -> None:
    if proper:
        header = ("?", KINDS["rules"].header())
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute(f"UPDATE entries SET header = {header[0]}", header[1:])  # noqa: S608 (of COLUMNS)
        db.execute(f"UPDATE bodies SET packed = {packed[0]}", packed[1:])  # noqa: S608 (of COLUMNS)
    storage = SqliteStorage(database)
    try:
        check(lambda: storage.load(A), A)
        check(lambda: next(iter(storage.entries())), A)
        check(lambda: storage.body(KINDS["rules"].sha256 or ""))
    finally:
        storage.close()


TEXTS = damaged(
    [b"max-age=60", b"no-store", b"120", b"Wed, 21 Oct 2015 07:28:00 GMT", b"5, 6"],
    [
        b"9" * 30,
        b"-",
        b",",
        b"=",
        b" ",
        b"Fri, 31 Dec 9999 23:59:59 -2359",
        b"\xff",
        b"max-age",
    ],
    20_000,
)
DEFAULTS = RepSettings.from_settings(Settings())
TIMES = st.floats(0, MAX_TIME) | st.sampled_from([0.0, NOW, MAX_TIME])


@given(
    st.lists(
        st.tuples(
            st.integers(100, 999), TEXTS, TEXTS, TEXTS, st.binary(max_size=99), TIMES
        ),
        min_size=1,
        max_size=4,
    ),
    TIMES,
)
def test_answers_of_any_kind_make_entries(answers: list[Any], ttl: float) -> None:
    """One after the other, by a clock that goes where it likes."""
    origin, clock = Origin.from_url(A), [NOW]
    given_settings = replace(DEFAULTS, cache_ttl=ttl, cache_max_ttl=max(ttl, 604800.0))
    fetcher: Any = None
    cache = RobotsCache(given_settings, fetcher, lambda: clock[0])
    for status, cache_control, age, again, body, clock[0] in answers:
        sent = Headers(
            {"Cache-Control": cache_control, "Age": age, "Retry-After": again}
        )
        error = OSError(again.decode("latin-1")) if status % 7 == 0 else None
        outcome = Outcome.UNREACHABLE if error else outcome_of(status, body)
        answer = Answer(outcome, origin.robots_url, 0, status, sent, body, error)
        entry = learn(cache, origin, answer).entry
        assert_usable(entry.check(str(origin)))
        assert len(entry.error or "") < 300
