"""Matching a URL against the rules of a group (REP.md section 8).

Rows are (rules, path, answer, reason); an answer is allowed or not, and the deciding line. The
rules of a row start on line 2.
"""

from __future__ import annotations

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import google_only, rfc9309, rows, rules, verdict

NO_RULE = (True, 0)
ALLOWED, DISALLOWED = (True, 2), (False, 2)

# Both tables of the section, row by row.
MATCHES = {
    "/": ["/", "/x", "/x/y?z"],
    "/*": ["/", "/x", "/x/y?z"],
    "/$": ["/"],
    "/fish": [
        "/fish",
        "/fish.html",
        "/fish/salmon.html",
        "/fishheads",
        "/fishheads/yummy.html",
        "/fish.php?id=anything",
    ],
    "/fish/": ["/fish/", "/fish/?id=anything", "/fish/salmon.htm"],
    "/*.php": [
        "/index.php",
        "/filename.php",
        "/folder/filename.php",
        "/folder/filename.php?parameters",
        "/folder/any.php.file.html",
        "/filename.php/",
    ],
    "/*.php$": ["/filename.php", "/folder/filename.php"],
    "/fish*.php": ["/fish.php", "/fishheads/catfish.php?parameters"],
}
MATCHES["/fish*"] = MATCHES["/fish"]
MATCHES_NOT = {
    "/$": ["/x", "/x/", "/?x"],
    "/fish": ["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
    "/fish/": ["/fish", "/fish.html", "/animals/fish/", "/Fish/Salmon.asp"],
    "/*.php": ["/", "/windows.PHP"],
    "/*.php$": ["/filename.php?parameters", "/filename.php/", "/filename.php5", "/windows.PHP"],
    "/fish*.php": ["/Fish.PHP"],
}
MATCHES_NOT["/fish*"] = MATCHES_NOT["/fish"]
FIRST_TABLE = [
    (rule, path, answer, f"{rule} {'matches' if answer == DISALLOWED else 'does not match'} {path}")
    for table, answer in ((MATCHES, DISALLOWED), (MATCHES_NOT, NO_RULE))
    for rule, paths in table.items()
    for path in paths
]


@pytest.mark.parametrize(("rule", "path", "answer"), rows("8", FIRST_TABLE, rfc9309))
def test_googles_first_table_of_path_matches_holds(
    rule: str, path: str, answer: tuple[bool, int]
) -> None:
    assert verdict(rules(f"Disallow: {rule}"), path) == answer


ALLOW_APPLIES, DISALLOW_APPLIES = (True, 2), (False, 3)
SECOND_TABLE = [
    ("/p", "/", "/page", ALLOW_APPLIES, "the longer one"),
    ("/folder", "/folder", "/folder/page", ALLOW_APPLIES, "tie"),
    ("/page", "/*.htm", "/page.htm", DISALLOW_APPLIES, "longer"),
    ("/page", "/*.ph", "/page.php5", ALLOW_APPLIES, "tie, the star counts"),
    ("/$", "/", "/", ALLOW_APPLIES, "the dollar counts"),
    ("/$", "/", "/page.htm", DISALLOW_APPLIES, "the allow does not match"),
]


@pytest.mark.parametrize(("allow", "disallow", "path", "answer"), rows("8", SECOND_TABLE, rfc9309))
def test_googles_second_table_of_precedence_holds(
    allow: str, disallow: str, path: str, answer: tuple[bool, int]
) -> None:
    assert verdict(rules(f"Allow: {allow}", f"Disallow: {disallow}"), path) == answer


STANDARD = [
    (["Disallow: /a"], "/A", NO_RULE, "comparison is case-sensitive"),
    (["Disallow: /a/b"], "/a", NO_RULE, "the whole rule must match"),
    (["Disallow: /a*c"], "/abbbc", DISALLOWED, "a star for many characters"),
    (["Disallow: /a*c"], "/ac", DISALLOWED, "a star for none"),
    (["Disallow: /a*c"], "/ab/x?y=c", DISALLOWED, "a star for slash and query too"),
    (["Disallow: /a**c"], "/abc", DISALLOWED, "two stars are one"),
    (["Disallow: /*a*b*c"], "/xaybzc", DISALLOWED, "several stars"),
    (["Disallow: /*a*b*c"], "/xbyazc", NO_RULE, "in their order"),
    (["Disallow: /*ab*bc"], "/abc", NO_RULE, "parts do not overlap"),
    (["Disallow: /*ab*abc$"], "/ababc", DISALLOWED, "the last part is sought from the end"),
    (["Disallow: /*ab*abc$"], "/abc", NO_RULE, "but does not overlap the one before"),
    (["Disallow: /a*$"], "/abc", DISALLOWED, "a star before the end is any end"),
    (["Disallow: /a*/$"], "/a/b/", DISALLOWED, "an end after a star"),
    (["Disallow: /a*/$"], "/a/b/c", NO_RULE, "an end after a star is the end"),
    (["Disallow: /a$"], "/a", DISALLOWED, "the end"),
    (["Disallow: /a$"], "/ab", NO_RULE, "not the end"),
    (["Disallow: /a$"], "/a?b", NO_RULE, "the query belongs to what is compared"),
    (["Disallow: /*?"], "/a?b", DISALLOWED, "a question mark is a character"),
    (["Disallow: /a?b"], "/ab", NO_RULE, "a question mark makes nothing optional"),
    (["Disallow: /a.c"], "/abc", NO_RULE, "a dot is a dot"),
    (["Disallow: /[a-z]+(x|y)"], "/[a-z]+(x|y)", DISALLOWED, "no regular expression"),
    (["Disallow: /a;b"], "/a;b=1?c", DISALLOWED, "parameters belong to what is compared"),
    (["Disallow: /a", "Allow: /a"], "/a", (True, 3), "a tie, whatever the order"),
    (["Disallow: /a*b", "Allow: /a"], "/ab", DISALLOWED, "longest of unlike rules"),
    (["Allow: /ab", "Disallow: /a*"], "/abc", ALLOWED, "a star is an octet: 3 to 3, tie"),
    (["Allow: /ab", "Disallow: /a**"], "/abc", (False, 3), "and another star another octet"),
    (["Allow: /a", "Disallow: /a$"], "/a", (False, 3), "the dollar is an octet"),
    (["Disallow: /", "Allow: /a/b/c", "Disallow: /a/b"], "/a/b/d", (False, 4), "nested"),
    (["Disallow: /", "Allow: /a/b/c", "Disallow: /a/b"], "/a/b/c", (True, 3), "nested deeper"),
    (["Disallow: /", "Allow: /a/b/c", "Disallow: /a/b"], "/a", DISALLOWED, "nested less deep"),
    (["Disallow: /a", "Disallow: /a"], "/a", DISALLOWED, "of the same rule the first line"),
    (["Disallow: /x*a", "Disallow: /xa*"], "/xa", DISALLOWED, "of equal rules the first line"),
    (["Disallow: /a", "Disallow: /ab", "Disallow: /abc"], "/abd", (False, 3), "one of a chain"),
    (["Disallow: /a-", "Disallow: /a-b/c", "Disallow: /a-b"], "/a-c", DISALLOWED, "a sibling"),
]
ESCAPES = [
    (["Disallow: /%C3%A9"], "/%C3%A9", DISALLOWED, "as written"),
    (["Disallow: /\u00e9"], "/%C3%A9", DISALLOWED, "raw UTF-8 is percent-encoded"),
    (["Disallow: /\u30c4"], "/%E3%83%84", DISALLOWED, "of any length"),
    (["Disallow: /%62%61"], "/ba", NO_RULE, "nothing is decoded in the rule"),
    (["Disallow: /ba"], "/%62%61", NO_RULE, "nothing is decoded in the URL"),
    (["Disallow: /a%2Fb"], "/a/b", NO_RULE, "an escaped slash is no slash"),
    (["Disallow: /a%2A"], "/ab", NO_RULE, "an escaped star is no wildcard"),
    (["Disallow: /a%24"], "/ab", NO_RULE, "an escaped dollar is no end"),
    (["Disallow: /a%24"], "/a%24b", DISALLOWED, "an escaped dollar is its escape"),
    (["Disallow: /%e3%83%84"], "/%E3%83%84", DISALLOWED, "escapes of a rule are upper-cased"),
    (["Allow: /%C3%A9", "Disallow: /\u00e9"], "/%C3%A9", ALLOWED, "length counts after encoding"),
    (["Allow: /12345", "Disallow: /*\u30c4"], "/12345%E3%83%84", (False, 3), "11 octets to 6"),
]
GOOGLES_ESCAPES = [
    (["Disallow: /%e3%83%84"], "/%e3%83%84", NO_RULE, "the caller upper-cases those of the URL"),
    (["Disallow: /\u00e9"], "/\u00e9", NO_RULE, "the caller encodes the URL"),
    (["Disallow: /*x"], "/\u00e9x", DISALLOWED, "a star takes raw characters of a URL"),
    (["Disallow: /%zz%2"], "/%zz%2", DISALLOWED, "what is no escape stays as it is"),
    (["Disallow: /%2%2f"], "/%2%2F", DISALLOWED, "nor confuses what follows"),
]
GOOGLES = [
    (["Disallow: /a$b"], "/a$b", DISALLOWED, "a dollar in the middle is a dollar sign"),
    (["Disallow: /a$b"], "/a", NO_RULE, "and no end"),
    (["Disallow: /a$*"], "/a$b", DISALLOWED, "a dollar before a star is a dollar sign"),
    (["Disallow: /a$$"], "/a$", DISALLOWED, "of two dollars the second is the end"),
    (["Disallow: /a$$"], "/a", NO_RULE, "of two dollars the first is none"),
    (["Disallow: *"], "/a", DISALLOWED, "a star alone"),
    (["Disallow: *a"], "/ba", DISALLOWED, "a star in front"),
    (["Disallow: *$"], "/ba", DISALLOWED, "a star and the end"),
    (["Disallow: $"], "/", NO_RULE, "a dollar alone never matches"),
    (["Disallow: a"], "/a", NO_RULE, "without a slash in front it never matches"),
    (["Disallow: a*"], "/a", NO_RULE, "nor with a star behind"),
    (["Disallow: https://example.com/a"], "/a", NO_RULE, "nor a whole URL"),
    (["Disallow: ?a"], "/?a", NO_RULE, "nor a query"),
    (["Disallow: //a"], "//a", NO_RULE, "two slashes in front of a URL are a host's"),
    (["Disallow: //a"], "https://example.com//a", DISALLOWED, "two slashes of a path are not"),
]
EMPTY = [
    (["Disallow:"], "/a", ALLOWED, "an empty rule restricts nothing"),
    (["Disallow:", "Disallow: /a"], "/a", (False, 3), "any other rule is longer"),
    (["Disallow:", "Disallow: /b"], "/a", ALLOWED, "it is named where no other matches"),
    (["Disallow:", "Allow:"], "/a", (True, 3), "an empty allow before an empty disallow"),
    (["Disallow:", "Disallow:"], "/a", ALLOWED, "the first of two"),
    (["Disallow: # /a"], "/a", ALLOWED, "nothing but a comment"),
]
INDEX = [
    (["Allow: /a/index.html"], "/a/", "its directory"),
    (["Allow: /a/index.html"], "/a/index.html", "itself"),
    (["Allow: /a/index.htm"], "/a/", "index.htm"),
    (["Allow: /a/index.htmlx"], "/a/", "whatever starts with index.htm"),
    (["Allow: /index.html"], "/", "the root"),
    (["Allow: /*/index.html"], "/a/b/", "with a wildcard"),
    (["Allow: /a/index.html$"], "/a/", "with an end"),
]
NO_INDEX = [
    (["Allow: /a/index.html"], "/a", "without the slash"),
    (["Allow: /a/index.html"], "/a/b", "what is below"),
    (["Allow: /a/index.html"], "/a/?b", "with a query"),
    (["Allow: /a/index.php"], "/a/", "another page"),
    (["Allow: /a/xindex.html"], "/a/", "not the start of the segment"),
    (["Allow: /a/index.html/b"], "/a/", "not the last segment"),
    (["Allow: /a/Index.html"], "/a/", "another case"),
    (["Disallow: /a/index.html"], "/b/", "no other directory"),
]


@pytest.mark.parametrize(
    ("lines", "path", "answer"),
    [
        *rows("8", STANDARD, rfc9309),
        *rows("8 escapes", ESCAPES, rfc9309),
        *rows("8 escapes", GOOGLES_ESCAPES, google_only),
        *rows("8", GOOGLES, google_only),
        *rows("8 empty", EMPTY, google_only),
    ],
)
def test_the_most_specific_matching_rule_decides(
    lines: list[str], path: str, answer: tuple[bool, int]
) -> None:
    assert verdict(rules(*lines), path) == answer


@google_only
@pytest.mark.parametrize(("lines", "path"), rows("8 index page", INDEX))
def test_index_page_allows_its_directory(lines: list[str], path: str) -> None:
    assert verdict(rules("Disallow: /", *lines), path) == (True, 3)


@google_only
@pytest.mark.parametrize(("lines", "path"), rows("8 no index page", NO_INDEX))
def test_index_page_allows_nothing_else(lines: list[str], path: str) -> None:
    assert verdict(rules("Disallow: /", *lines), path) == (False, 2)


@google_only
def test_index_page_is_as_long_as_its_directory() -> None:
    """It competes as ``/a/$``, not with its own length."""
    body = rules("Allow: /a/index.html", "Disallow: /a/*", "Disallow: /*a/")
    assert verdict(body, "/a/") == (True, 2)
    assert verdict(rules("Allow: /a/index.html", "Disallow: /*a*/"), "/a/") == (False, 3)


BYTES = [
    (b"Disallow: /\xe9", "/%E9", "a byte that is not UTF-8"),
    (b"Disallow: /\xc3\xa9\xff", "/%C3%A9%FF", "beside one that is"),
    (b"Disallow: /\xe3\x83", "/%E3%83", "UTF-8 cut off"),
    (b"Disallow: /\xff*\xfe$", "/%FFx%FE", "between wildcards"),
]


@google_only
@pytest.mark.parametrize(("line", "path"), rows("8 escapes", BYTES))
def test_bytes_are_encoded_one_by_one(line: bytes, path: str) -> None:
    assert verdict(b"User-agent: *\n" + line, path) == DISALLOWED


def test_each_of_a_thousand_plain_prefixes_is_found() -> None:
    """Plain prefixes are not tested one by one: each must be found all the same."""
    many = [f"Disallow: /{number:03d}/" for number in range(1000)]
    robots = RobotsTxt.parse(rules(*many, "Allow: /5", "Allow: /*9/$").encode())
    lines = {f"/{number:03d}/x": number + 2 for number in range(1000)}
    for path, line in {**lines, "/5000": 1002, "/009/": 1003}.items():
        rule = robots.decide(path, "FooBot").rule
        assert rule is not None
        assert rule.line == line
    assert robots.decide("/1000", "FooBot").rule is None
