"""Files made of robots.txt's own words, and questions that are likely to meet a rule."""

from __future__ import annotations

from hypothesis import strategies as st

FIELDS = [
    *["User-agent", "Allow", "Disallow"] * 3,
    "user-agent", "useragent", "user agent", "USER-AGENT", "user-agents",
    "allow", "allowed", "ALLOW",
    "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "disallowed",
    "Sitemap", "site-map", "Crawl-delay", "noindex", "foo bar", "xdisallow", "",
]  # fmt: skip
SEPARATORS = [*[": ", ":"] * 4, " : ", "\t:\t", " ", "\t ", "", "::", "\f:\v", ":\0"]
GROUPS = [
    *["*", "foo"] * 4, "Foo", "bar", "foo-bar", "foo_bar", "foo/1.2", "foo*", "Foo Bar",
    "foo.bar", "* x", "*\f", "*foo", "", "-", "1", "Mozilla/5.0 (compatible; foo)", "f\xe4o",
]  # fmt: skip
PATH_PARTS = [
    *["/", "*", "a", "b"] * 3, "$", "ab", "A", "/a/", "/index.htm", "/index.html", ".php",
    "%2f", "%2F", "%c3%A9", "\u00e9", "\u30c4", "?", "?q=1", ";", "%", " ", "\t", "\v", "://",
]  # fmt: skip
TAILS = [*[""] * 6, " ", "\t", " # c", "#", "\0x", "\f", "\x1c", "\x85", " y"]
HOSTS = [
    *["https://example.com"] * 6, "http://u:p@example.com:8080", "HTTP://x", "ftp://x",
    "//example.com", "example.com", "", "x://y",
]  # fmt: skip
TOKENS = ["foo", "FOO", "bar", "foo-bar", "foo_bar", "f", "-", "*", ""]
tokens = st.sampled_from(TOKENS)
chains = st.lists(tokens, max_size=3)
any_text = st.text(st.characters(exclude_categories=()))
line_ends = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])

# Built once: a strategy that is made while an example is drawn costs more than the draw.
_parts = st.lists(st.sampled_from(PATH_PARTS), max_size=4).map("".join)
values = st.tuples(st.sampled_from(["/"] * 6 + ["*", ""]), _parts).map("".join)


def _line_of(field: str) -> st.SearchStrategy[str]:
    value = st.sampled_from(GROUPS) if field.lower().startswith("us") else values
    return st.tuples(
        st.sampled_from(["", "", "", "", " ", "\t", "\f"]),
        st.just(field),
        st.sampled_from(SEPARATORS),
        value,
        st.sampled_from(TAILS),
    ).map("".join)


_lines_of = {field: _line_of(field) for field in FIELDS}
lines = st.sampled_from(FIELDS).flatmap(_lines_of.__getitem__)
ended_lines = st.tuples(
    lines, st.sampled_from(["utf-8", "utf-8", "latin-1"]), line_ends
).map(lambda parts: parts[0].encode(parts[1], "replace") + parts[2])
starts = st.sampled_from(
    [
        bom + agent
        for bom in (b"", b"", b"\xef", b"\xef\xbb", b"\xef\xbb\xbf", b"\xfe\xff")
        for agent in (
            b"User-agent: foo\n",
            b"User-agent: *\r\n",
            b"foo\rUser-agent: *\r",
            b"",
        )
    ]
)
# Hypothesis likes small examples, where no rule ever decides: hence the lower bound.
files = st.tuples(
    starts, st.lists(ended_lines, min_size=4, max_size=15).map(b"".join)
).map(b"".join)
mixed = st.lists(
    st.one_of(
        ended_lines, st.binary(max_size=8), st.sampled_from([b"\n", b"\r", b"\0", b":"])
    ),
    max_size=15,
).map(b"".join)
bodies = st.one_of(files, files, files, mixed, st.binary())
_stars = st.sampled_from(["", "a", "b", "/a", "*"])
_ends = st.sampled_from(["", "", "", "/", "a", "?q=1", "#", "#/a", "$"])
_hosts = st.sampled_from(HOSTS)
_forms = st.sampled_from(
    [str, lambda one: one.removesuffix("$"), str.upper, lambda one: one[:-1]]
)
_booleans = st.booleans()


@st.composite
def urls(draw: st.DrawFn, body: bytes = b"") -> str:
    """A URL: where the *body* has rules, mostly what one of them could have been written for."""
    rules = [value for value in body.decode(errors="replace").split() if "/" in value]
    path = draw(st.sampled_from(rules) if rules else values)
    path = path[path.index("/") :] if "/" in path else "/" + path
    path = path.replace("*", draw(_stars))
    path = draw(_forms)(path)
    path += draw(_ends)
    if "index.htm" in path and draw(_booleans):
        path = path[: path.index("index.htm")]
    return draw(_hosts) + path


@st.composite
def questions(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A file, and URLs to ask about."""
    body = draw(bodies)
    return body, draw(st.lists(urls(body), min_size=1, max_size=6))
