"""``Content-Usage``: the examples of the drafts, and what of RFC 9651 they need."""

from __future__ import annotations

import sys

import pytest

from scrapy_rep.preferences.statements import (
    MAX_BYTES,
    Malformed,
    header_statements,
    preferences,
    read_preferences,
    split_rule,
)

# draft-ietf-aipref-vocab-08, "Exemplary Serialization Format".
VOCAB = [
    (b"train-ai=y, search=n", {"train-ai": "y", "search": "n"}),
    (b'train-ai=y, train-ai, search=n, search="n"', {}),
    (b"train-ai;allow=n, train-ai=y", {"train-ai": "y"}),
    (b'train-ai;has;parameters="?"', {}),
    (b"Train-ai=y", {}),
    (b"train-ai=Y", {}),
    (b"train-ai=yes", {}),
    (b"ai-use=n", {"ai-input": "n"}),
    (b"train-ai=y, train-ai=n", {"train-ai": "n"}),
    (b"other=y, search=y", {"search": "y"}),
    (b"", {}),
]


@pytest.mark.parametrize(("value", "says"), VOCAB)
def test_preferences_as_the_vocabulary_has_them(value: bytes, says: dict[str, str]) -> None:
    assert preferences(value) == says


# RFC 9651, 3.2 and 4.2.2. The rest is the business of the library that parses it.
def test_unknown_keys_of_a_dictionary_mean_nothing() -> None:
    value = b'  en="Applepie", rating=1.5;x, feelings=(joy sadness) ,\t a=1, a=2, b=?0'
    assert list(read_preferences(value)) == ["en", "rating", "feelings", "a", "b"]
    assert preferences(value) == {}
    assert preferences(value + b", train-ai=n") == {"train-ai": "n"}


@pytest.mark.parametrize("value", [b"a=1,", b"a = 1", b"A=1", b"a=(1 2", b'a="\xc3\xa4"', b"a\0=1"])
def test_what_is_no_dictionary_says_nothing(value: bytes) -> None:
    with pytest.raises(Malformed):
        read_preferences(value)
    assert preferences(b"train-ai=n, " + value) == {}


def test_long_preferences_say_nothing() -> None:
    value = b"train-ai=n" + b", a" * MAX_BYTES
    assert preferences(value) == {}
    assert preferences(value[: MAX_BYTES // 2 * 2 - 2].rstrip(b", ")) == {"train-ai": "n"}


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("train-ai=n", ("", "train-ai=n")),
        ("/ train-ai=n", ("/", "train-ai=n")),
        ("/a\t \ttrain-ai=n", ("/a", "train-ai=n")),
        ("/a*b$ train-ai=n, search=y", ("/a*b$", "train-ai=n, search=y")),
        ("/a", ("/a", "")),
        ("", ("", "")),
    ],
)
def test_a_path_ends_at_a_blank_or_tab(value: str, parts: tuple[str, str]) -> None:
    """draft-ietf-aipref-attach-05, "Processing Content-Usage Rules"."""
    assert split_rule(value) == parts


def test_headers_are_one_dictionary_cut_into_pieces() -> None:
    assert header_statements([]) == []
    [one] = header_statements([b"train-ai=n, search=y", b"search=n"])
    assert one.says == {"train-ai": "n", "search": "n"}
    assert str(one) == "header Content-Usage: train-ai=n, search=y, search=n"
    [one] = header_statements([b"train-ai=n", b"Search=n"])
    assert one.says == {}
    [one] = header_statements([b"\xff" * 100_000])
    assert one.says == {}
    assert len(one.text) == 1_000


def test_the_parser_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "http_sf", None)
    assert header_statements([]) == []
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'scrapy-rep\[usage\]'"):
        header_statements([b"train-ai=n"])
