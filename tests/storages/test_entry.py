"""What is kept of an origin, outside this process: it comes back as it was, and what is broken or
of a newer form counts as absent. Whatever bytes a storage hands over, nothing else is raised."""

from __future__ import annotations

import json
import zlib
from dataclasses import fields, replace

import pytest

from scrapy_rep.storages import Entry, UnreadableEntry
from scrapy_rep.storages.base import SCHEMA, unsqueeze
from tests.helpers.rows import every_row
from tests.helpers.storing import A, B, missing, rules


def test_what_entries_are_compared_with() -> None:
    """Every field is part of the form: none is forgotten by `header()`."""
    whole = rules(
        attempts=1, dead_attempts=1, unreachable_since=1.0, next_attempt_at=2.0
    )
    whole = replace(whole, unreachable_for=3.0, error="why", hops=1, wall="sign")
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


# What numbers are out of range is in tests/hostile/test_hostile_numbers.py.
BROKEN_HEADERS: list[str | bytes] = [
    *("", "null", "[]", '"text"', "{}", '{"schema":1}', '{"origin":"http://a:80"}', b"\xff\xfe\x00"),
    *(f'{{"schema":{schema},"origin":"http://a:80"}}' for schema in ("null", '"1"')),
    '{"schema":1,"origin":null}',
    '{"schema":1,"origin":"http://a:80"}x',
    *("[" * 100_000, '{"a":' * 100_000),
    *(
        f'{{"schema":1,"origin":"http://a:80",{field}}}'
        for field in (
            *('"outcome":"else"', '"status":"200"', '"attempts":true', '"attempts":1.5'),
            *(f'"fresh_until":{value}' for value in ("null", "NaN", "Infinity", "1e999")),
        )
    ),
]  # fmt: skip


def test_broken_headers_are_refused() -> None:
    with every_row() as row:
        for header in BROKEN_HEADERS:
            with row(header[:60]), pytest.raises(UnreadableEntry, match=r"^broken: "):
                Entry.from_parts(header)


def test_unknown_fields_are_ignored() -> None:
    """Fields may be added without another schema; and old entries lack some."""
    values = json.loads(rules().header())
    assert (
        Entry.from_parts(json.dumps({**values, "etag": "x"}), rules().packed) == rules()
    )
    del values["url"]
    assert Entry.from_parts(json.dumps(values), rules().packed) == replace(
        rules(), url=""
    )


def test_an_entry_of_a_newer_schema_is_refused() -> None:
    schema = SCHEMA + 1
    words = f"of the form {schema}; this version knows {SCHEMA}"
    header = json.dumps({"schema": schema, "origin": {"as": "nobody knows"}})
    with pytest.raises(UnreadableEntry, match=words):
        Entry.from_parts(header)
    with pytest.raises(UnreadableEntry, match=words):
        Entry.unpack(bytes([schema]) + b"in a way that nobody knows")


def test_what_is_not_the_entry_is_refused() -> None:
    """A storage may have lost the body, or hand over something else, of another type even."""
    for packed in (b"", b"x", rules(body=b"other").packed, "text", 7):
        with pytest.raises(UnreadableEntry):
            Entry.from_parts(rules().header(), packed).check(A)  # type: ignore[arg-type]
    with pytest.raises(UnreadableEntry, match="it belongs to " + B):
        rules(B).check(A)


def test_a_body_that_unpacks_beyond_the_limit_is_refused() -> None:
    """No robots.txt is larger than 512,000 bytes: what unpacks to more is none."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(5 << 20)) + packer.flush()
    assert len(bomb) < 6_000
    with pytest.raises(UnreadableEntry):
        unsqueeze(bomb)
