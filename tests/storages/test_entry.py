"""What is kept of an origin, outside this process: it comes back as it was, and what is broken or
of a newer form counts as absent. Whatever bytes a storage hands over, nothing else is raised."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry, UnreadableEntry
from scrapy_rep.storages.entry import MAX_TIME, SCHEMA, pack_body, squeeze, unsqueeze
from tests.helpers.storing import KINDS, NOW, A, B, missing, rules

times = st.floats(0, MAX_TIME)
optional_times = st.none() | times
counts = st.integers(0, 10**9)
# Half of a surrogate pair stands for a byte that is no text; a whole one is a character.
texts = st.text() | st.text("\udcff\0\u00e9\U0001f916a\"'\\")
bodies = st.binary(max_size=2000)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry there may be, and many that there may not."""
    entry = Entry(
        draw(texts),
        updated_at=draw(times),
        outcome=draw(st.sampled_from(Outcome)),
        status=draw(st.none() | st.integers(100, 999)),
        url=draw(texts),
        hops=draw(counts),
        fetched_at=draw(optional_times),
        fresh_until=draw(times),
        unreachable_since=draw(optional_times),
        unreachable_for=draw(times),
        attempts=draw(counts),
        dead_attempts=draw(counts),
        proxy_attempts=draw(counts),
        next_attempt_at=draw(times),
        not_before=draw(times),
        error=draw(st.none() | texts),
    )
    if entry.outcome is not Outcome.RULES:
        return entry
    packed, sha256 = pack_body(draw(bodies))
    return replace(entry, packed=packed, sha256=sha256)


@given(entries())
@settings(deadline=None)
def test_a_packed_entry_unpacks_to_the_same_entry(entry: Entry) -> None:
    assert Entry.unpack(entry.pack()) == entry
    assert Entry.from_parts(entry.header(), entry.packed) == entry
    assert Entry.from_parts(entry.header().encode(), entry.packed or None) == entry
    assert entry.check(entry.origin) is entry


@given(bodies)
@settings(deadline=None)
def test_a_packed_body_unpacks_to_the_same_bytes(body: bytes) -> None:
    packed, sha256 = pack_body(body)
    assert unsqueeze(packed) == body
    assert sha256 == hashlib.sha256(body).hexdigest()
    assert rules(body=body).body == body


def test_what_entries_are_compared_with() -> None:
    """Every field is part of the form: none is forgotten by `header()`."""
    whole = rules(attempts=1, dead_attempts=1, unreachable_since=1.0, next_attempt_at=2.0)
    whole = replace(whole, unreachable_for=3.0, error="why", hops=1)
    whole = replace(whole, proxy_attempts=1, not_before=2.0, page_answered_at=1.0)
    values = json.loads(whole.header())
    assert values.pop("schema") == SCHEMA
    assert set(values) == {one.name for one in fields(Entry)} - {"packed"}
    assert json.loads(Entry(A).header()) == {"schema": SCHEMA, "origin": A}


def test_packed_entries_are_small() -> None:
    """REP_CACHE_MAX_ORIGINS counts on a kilobyte each."""
    assert len(missing().pack()) < 130
    assert len(rules().pack()) < 250


def test_the_form_of_today_is_read_for_ever() -> None:
    """These bytes are on disks by now. A change that can't read them needs another SCHEMA."""
    assert SCHEMA == 1
    entry = rules("https://example.com:443", b"User-agent: *\nDisallow: /x\n", hops=1)
    packed = bytes.fromhex(PACKED)
    assert Entry.unpack(packed) == entry


PACKED = "010000007a9d92510ac2400c44efe201ea6e36e966bdcdd84da5d056a9fd28887777fb23ad2082ffc30cc97b8f9d285377e9c60d7d5b30dc7a5bc74ecc2b9a6f8ffa0968afd547f171ba964befd5bccc878d8a6fa8489449232221b42141c44859ada9d16af07580f986d4c71233ca9ac002ef249f9d91b02ba57f68f17c01c3a9ad820b00"


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_arbitrary_bytes_are_refused_as_unreadable(data: bytes) -> None:
    assert_only_unreadable(data)
    assert_only_unreadable(bytes([SCHEMA]) + data)
    assert_only_unreadable(bytes([SCHEMA]) + struct.pack(">I", len(data)) + data)
    header = squeeze(data)
    assert_only_unreadable(bytes([SCHEMA]) + struct.pack(">I", len(header)) + header)
    for packed in (None, b"", data):
        for part in (data, data.decode("latin-1"), data.decode("utf-8", "surrogateescape")):
            try:
                entry = Entry.from_parts(part, packed)
            except UnreadableEntry:
                continue
            pytest.fail(f"taken for {entry}")
    try:
        unsqueeze(data)
    except UnreadableEntry:
        pass


def assert_only_unreadable(data: bytes) -> None:
    try:
        entry = Entry.unpack(data)
        entry.check(entry.origin)
    except UnreadableEntry as error:
        assert str(error).startswith(("broken: ", "of the form ")), error


@pytest.mark.slow
@given(entries(), st.data())
@settings(max_examples=300, deadline=None)
def test_damage_is_noticed_or_does_no_harm(entry: Entry, data: st.DataObject) -> None:
    """A cut, a flipped byte, another's end: the body is never anything but what was kept."""
    whole = entry.pack()
    place = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["cut", "flip", "insert", "remove"]))
    byte = bytes([data.draw(st.integers(0, 255))])
    broken = {
        "cut": whole[:place],
        "flip": whole[:place] + byte + whole[place + 1 :],
        "insert": whole[:place] + byte + whole[place:],
        "remove": whole[:place] + whole[place + 1 :],
    }[kind]
    try:
        read = Entry.unpack(broken).check(entry.origin)
    except UnreadableEntry:
        return
    assert read.body == entry.body or hashlib.sha256(read.body).hexdigest() == read.sha256


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["rules", "missing", "unreachable", 10**400, -1, SCHEMA, [], {}, [1], {"a": 1}]
    ),
)
NAMES = ["schema", *(one.name for one in fields(Entry)), "new"]


@given(st.dictionaries(st.sampled_from(NAMES), odd_values, max_size=4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_header_is_read_gives_a_usable_entry(values: dict[str, Any], proper: bool) -> None:
    """What has been read can be used: compared with times, kept again, judged."""
    if proper:
        values = {**values, "schema": SCHEMA, "origin": A}
    header = json.dumps(values)
    try:
        entry = Entry.from_parts(header)
    except UnreadableEntry:
        return
    for name in ("updated_at", "fresh_until", "next_attempt_at"):
        assert isinstance(getattr(entry, name) - NOW, float)
    for moment in (entry.fetched_at, entry.unreachable_since):
        assert moment is None or isinstance(moment - NOW, float)
    # NaN differs from itself, and infinity is no time.
    assert Entry.unpack(entry.pack()) == entry


@pytest.mark.parametrize(
    "header",
    [
        "",
        "null",
        "[]",
        "1",
        '"text"',
        "{}",
        '{"schema":1}',
        '{"origin":"http://a:80"}',
        '{"schema":null,"origin":"http://a:80"}',
        '{"schema":"1","origin":"http://a:80"}',
        '{"schema":1,"origin":null}',
        '{"schema":1,"origin":1}',
        '{"schema":1,"origin":"http://a:80","outcome":"else"}',
        '{"schema":1,"origin":"http://a:80","outcome":[]}',
        '{"schema":1,"origin":"http://a:80","attempts":"1"}',
        '{"schema":1,"origin":"http://a:80","attempts":1.5}',
        '{"schema":1,"origin":"http://a:80","attempts":true}',
        '{"schema":1,"origin":"http://a:80","fresh_until":"tomorrow"}',
        '{"schema":1,"origin":"http://a:80","fresh_until":null}',
        '{"schema":1,"origin":"http://a:80","fresh_until":NaN}',
        '{"schema":1,"origin":"http://a:80","fresh_until":Infinity}',
        '{"schema":1,"origin":"http://a:80","fresh_until":1e999}',
        '{"schema":1,"origin":"http://a:80","next_attempt_at":1' + "0" * 400 + "}",
        '{"schema":1,"origin":"http://a:80"',
        '{"schema":1,"origin":"http://a:80"}x',
        "[" * 100_000,
        '{"a":' * 100_000,
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda header: repr(header[:60]),
)
def test_a_broken_header_is_refused(header: str | bytes) -> None:
    with pytest.raises(UnreadableEntry, match=r"^broken: "):
        Entry.from_parts(header)


def test_unknown_fields_are_ignored() -> None:
    """Fields may be added without another schema; and old entries lack some."""
    values = json.loads(rules().header())
    assert Entry.from_parts(json.dumps({**values, "etag": "x"}), rules().packed) == rules()
    del values["url"]
    assert Entry.from_parts(json.dumps(values), rules().packed) == replace(rules(), url="")


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99])
def test_an_entry_of_a_newer_schema_is_refused(schema: int) -> None:
    words = f"of the form {schema}; this version knows {SCHEMA}"
    header = json.dumps({"schema": schema, "origin": {"as": "nobody knows"}})
    with pytest.raises(UnreadableEntry, match=words):
        Entry.from_parts(header)
    with pytest.raises(UnreadableEntry, match=words):
        Entry.unpack(bytes([schema]) + b"in a way that nobody knows")


@pytest.mark.parametrize("packed", [b"", b"x", rules(body=b"other").packed, "text", 7, 1.5])
def test_bodies_that_are_not_the_one(packed: Any) -> None:
    """A storage may have lost it, or hand over something else, of another type even."""
    with pytest.raises(UnreadableEntry):
        Entry.from_parts(rules().header(), packed).check(A)


def test_entries_of_somebody_else() -> None:
    with pytest.raises(UnreadableEntry, match="it belongs to " + B):
        rules(B).check(A)


def test_a_body_that_unpacks_beyond_the_limit_is_refused() -> None:
    """No robots.txt is larger than 512,000 bytes: what unpacks to more is none."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(50 << 20)) + packer.flush()
    assert len(bomb) < 60_000
    with pytest.raises(UnreadableEntry):
        unsqueeze(bomb)


def test_the_kinds_of_entries_all_differ() -> None:
    """Else the other tests would compare like with like."""
    assert len({one.pack() for one in KINDS.values() if one.error != "\udcff\0\u30c4'"}) == 8
