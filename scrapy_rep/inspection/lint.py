"""What the owner of a robots.txt would want to know about it, line by line (REP.md sections 6 to 9).

>>> from scrapy_rep.inspection.lint import lint
>>> for finding in lint(b"User-agent: *\\nDissallow: /x\\nDisallow: private\\n"):
...     print(finding.line, finding.code, finding.message)
2 typo "Dissallow" is read as disallow here; other crawlers may ignore the line
3 never-matches can never match: paths start with /

Here are the checks of the file, of its lines and of its patterns; effects.py has those of what
crawlers may fetch, and findings.py says each finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches

from scrapy_rep.inspection.effects import DELAYS, effects
from scrapy_rep.inspection.findings import Finding, finding, grouped, quoted, shortened
from scrapy_rep.inspection.patterns import (
    BLANK,
    Paths,
    can_match,
    directory_of,
    has_inner_dollar,
    is_index,
    is_star_needless,
    is_url,
    joined_paths,
    path_meant,
    paths_of,
    regular_expression_in,
)
from scrapy_rep.protocol import AgentLine, Group, RuleLine
from scrapy_rep.protocol.availability import is_html
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.syntax import (
    FIELDS,
    GLOBAL,
    MAX_BYTES,
    MAX_LINE,
    RULES,
    SPACE,
    cut,
    field_of,
    is_name,
    readable,
)

Check = Callable[[bytes], Iterable[Finding]]


def lint(
    body: bytes, *, robots_url: str | None = None, also: Sequence[Check] = ()
) -> list[Finding]:
    """Return what there is to say about *body*: one finding of each kind, with all its lines, in the
    order of their first lines.

    :param body: any bytes at all; the whole file, or as much of it as was fetched
    :param robots_url: where it is from, to tell which sitemaps are on its own host
    :param also: further checks, of the part of the file that counts
    """
    findings = every_finding(body, robots_url=robots_url, also=also)
    # After the last line, what is beyond the limit may begin.
    texts = [*(row.decode("utf-8", "backslashreplace") for row in rows(cut(body))), ""]
    return grouped(findings, texts)


def every_finding(
    body: bytes, *, robots_url: str | None = None, also: Sequence[Check] = ()
) -> Iterator[Finding]:
    """Yield a finding for each line, in no order. Arguments as for :func:`lint`."""
    kept = cut(body)
    outline = Outline.of(kept)
    yield from _file(body, kept, outline)
    if not _UTF16.match(body):
        yield from _lines(kept, outline)
    yield from _groups(outline)
    yield from effects(kept, outline, robots_url)
    for check in also:
        yield from check(kept)


# -- the file --------------------------------------------------------------------------------

# Even part of a byte order mark is skipped, see `normalise`.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")
# How Windows' "Unicode" files begin: with a mark and a letter, of two bytes each.
_UTF16 = re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]")


def rows(kept: bytes) -> list[bytes]:
    """Return the lines as they stand in the file, numbered as the parser numbers them."""
    return (
        _BOM.sub(b"", kept).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    )


def _file(body: bytes, kept: bytes, outline: Outline) -> Iterator[Finding]:
    has_rules = any(group.rules for group in outline.groups)
    is_page = is_html(kept)
    if _UTF16.match(body):
        yield finding(1, "utf-16")
    elif _BOM.match(body):
        yield finding(1, "bom")
    if is_page:
        effect = (
            "the rules in it count"
            if has_rules
            else "it has no rules, so nothing is forbidden"
        )
        yield finding(None, "html", effect=effect)
    elif not outline.groups and not outline.ungrouped and not _UTF16.match(body):
        yield finding(None, "empty")
    if len(body) > MAX_BYTES:
        first = len(rows(body[: MAX_BYTES + 1]))
        yield finding(first, "beyond-limit", limit=MAX_BYTES)


# -- lines -----------------------------------------------------------------------------------

# Fields of preferences/lint.py.
_ABOUT_USE = ("content-signal", "content-usage", "license")

# What a value of such a field has to be.
_RIGHT_DELAY = {
    "crawl-delay": "a number of seconds",
    "request-rate": "a rate such as 1/10",
}

_NO_FIX = "nothing has to be done"

# Fields that some crawlers read or have read, and Google's don't: what to say, and the fix.
_OF_OTHERS = {
    "host": (
        "Google ignores host, and Yandex has done so since 2018",
        "redirect the other names of the site to the one that you prefer, and delete the line",
    ),
    "clean-param": (
        "Yandex reads clean-param; Google ignores it",
        "nothing has to be done for Yandex; tell Google by canonical links in the pages",
    ),
}

# Fields about the pages of search results. Google stopped reading the first of them in 2019.
_ABOUT_INDEXING = ("noindex", "nofollow", "noarchive", "nosnippet")

_MARKUP = re.compile(
    r"\s{0,99}<(?:!doctype|!--|/?[a-z][a-z0-9]{0,19}(?=[\s/>]|\Z))", re.IGNORECASE
)

# So many lines with tags are a page, rather than somebody's idea of a comment.
_MANY_TAGS = 3


def _lines(kept: bytes, outline: Outline) -> Iterator[Finding]:
    texts = []
    for number, row in enumerate(rows(kept), 1):
        if len(row) > MAX_LINE:
            yield finding(number, "line-cut", length=len(row), limit=MAX_LINE)
        row = row[:MAX_LINE].partition(b"\0")[0]
        if row.decode("utf-8", "ignore").encode() != row:
            yield finding(number, "not-utf8")
        texts.append(row.decode("latin-1"))
    page = range(1, len(texts) + 1)
    if not is_html(kept):
        page = _appended_page(texts, outline)
        if page:
            yield finding(page.start, "html-appended", last=page.stop - 1)
    guesses = _MAX_GUESSES
    for number, text in enumerate(texts, 1):
        if number in outline.fields:
            yield from _known(number, text, *outline.fields[number])
        elif number not in page and text:
            guesses -= 1
            yield from _unknown(number, text, may_guess=guesses >= 0)
    for line in outline.ungrouped:
        yield finding(line.rule.line, "rule-before-group")


def _appended_page(texts: list[str], outline: Outline) -> range:
    """Return the numbers of the lines that are HTML within a file that begins as a robots.txt: up to
    the next line that is none."""
    tags = [number for number, text in enumerate(texts, 1) if _MARKUP.match(text)]
    if not tags:
        return range(0)
    after = [number for number in outline.fields if number > tags[0]]
    end = min(after, default=len(texts) + 1)
    tags = [number for number in tags if number < end]
    return range(tags[0], tags[-1] + 1) if len(tags) >= _MANY_TAGS else range(0)


def _known(number: int, row: str, field: str, value: str) -> Iterator[Finding]:
    stripped = row.strip(SPACE)
    before = stripped.partition("#")[0]
    name, colon, _ = before.partition(":")
    name = name.strip(SPACE) if colon else before.split()[0]
    word = name
    if field in RULES:
        yield from _comment_in_rule(number, stripped, before, value)
    if not colon:
        meant = quoted(readable(f"{word}: {value}"))
        yield finding(number, "missing-colon", word=quoted(word), meant=meant)
    elif word_before := word_without_colon(before):
        word = word_before
        yield _later_colon(number, field, value, before, word)
    if word.lower() != field:
        yield finding(number, "typo", name=quoted(readable(word)), field=field)
    if field == "visit-time":
        effect = "Google ignores visit-time; a few crawlers obey it"
        yield finding(number, "other-field", topic=field, effect=effect, fix=_NO_FIX)
    elif field in DELAYS and DELAYS[field](value) is None:
        right = _RIGHT_DELAY[field]
        yield finding(number, "bad-delay", value=quoted(readable(value)), right=right)


def word_without_colon(before: str) -> str:
    """Return the field name of a line whose colon stands further behind, as part of the value:
    ``Disallow /wiki/Special:Search``; "" for another line. *before*: what precedes a comment."""
    name, colon, _ = before.partition(":")
    name = name.strip(SPACE)
    words = BLANK.split(name)
    for word in (words[0], " ".join(words[:2])):
        if colon and word != name and field_of(f"{word}:") is not None:
            return word
    return ""


def _later_colon(
    number: int, field: str, value: str, before: str, word: str
) -> Finding:
    """``Disallow /wiki/Special:Search`` is read as ``Disallow: Search``, and a URL loses its scheme."""
    read_as = quoted(readable(f"{field}: {value}"))
    if field in RULES and not value:
        read_as += ", which restricts nothing"
    elif field in RULES and not can_match(value):
        read_as += ", which never matches"
    behind = before.strip(SPACE)[len(word) :].strip(SPACE)
    if value[:1] in ("/", "*") and behind[0] not in "/*" and not is_url(behind):
        behind = value
    meant = quoted(readable(f"{word}: {behind}"))
    return finding(
        number, "later-colon", word=quoted(word), read_as=read_as, meant=meant
    )


def _comment_in_rule(
    number: int, row: str, before: str, value: str
) -> Iterator[Finding]:
    """Yield a ``#`` that stands where a path goes on. Comments have a blank before or behind them."""
    after = row[len(before) + 1 :]
    is_in_path = (
        value != "" and before[-1:] not in SPACE and after[:1] not in (" ", "\t", "#")
    )
    is_path = value == "" and after[:1] in ("/", "!")
    if before != row and (is_in_path or is_path):
        yield finding(number, "hash-cut", read_as=quoted(readable(before.strip(SPACE))))


def _unknown(number: int, text: str, *, may_guess: bool) -> Iterator[Finding]:
    """Yield what is wrong with a line that means nothing to the parser.

    :param may_guess: whether to find out which field may have been meant
    """
    text = text.partition("#")[0].strip(SPACE)
    name, colon, _ = text.partition(":")
    name = name.strip(SPACE)
    key = name.lower()
    if not text or (colon and key in _ABOUT_USE):
        return
    words = BLANK.split(name, 2)[:2]
    meant = None
    if may_guess and colon:
        meant = _closest(name, _CLOSE) or _closest("-".join(words), _CLOSE)
    elif may_guess:
        meant = _closest(words[0], _VERY_CLOSE) or _closest(
            "-".join(words), _VERY_CLOSE
        )
    if colon and key in _OF_OTHERS:
        effect, fix = _OF_OTHERS[key]
        yield finding(number, "other-field", topic=key, effect=effect, fix=fix)
    elif colon and key in _ABOUT_INDEXING:
        yield finding(number, "noindex-field", topic=key, name=key)
    elif colon and meant:
        yield finding(
            number, "misspelt-field", name=quoted(readable(name)), meant=meant
        )
    elif colon:
        yield finding(number, "unknown-field", name=quoted(readable(name)))
    elif meant:
        yield finding(
            number, "line-ignored", word=quoted(readable(words[0])), meant=meant
        )
    else:
        yield finding(number, "no-field")


# How similar a name has to be to a field's, from 0 to 1.
_CLOSE = 0.75
# Without a colon: a sentence begins with a word like "all" more often than with a misspelt field.
_VERY_CLOSE = 0.85

# Lines for which a field that may have been meant is looked for: each takes 0.1 ms.
_MAX_GUESSES = 2_000


def _closest(name: str, closeness: float) -> str | None:
    return next(iter(get_close_matches(name.lower()[:50], FIELDS, 1, closeness)), None)


# -- groups and patterns ---------------------------------------------------------------------


def _agent(agent: AgentLine) -> Iterator[Finding]:
    line, value, token = agent
    if not token:
        why = f": {quoted(value)} does not start with a letter, - or _, as product tokens do"
        fix = 'write a product token, as in "User-agent: Googlebot", or * for all crawlers'
        if is_name(value):
            fix = "keep it if the crawler goes by this name: it may know itself; others read no name"
        yield finding(line, "agent-never", why=why if value else "", fix=fix)
    elif token == GLOBAL != value:
        fix = 'write "User-agent: *"'
        yield finding(line, "agent-cut", value=quoted(value), read_as=token, fix=fix)
    elif token != value.lower():
        written = value[: len(token)]
        fix = f'write "User-agent: {shortened(written)}"'
        if is_name(value):
            fix = "keep it if the crawler goes by this name; others read names only so far"
        elif BLANK.search(value) or "," in value:
            fix = "write one name a line, each with user-agent before it, and without blanks"
        read_as = f"{quoted(written)}: product tokens have letters, - and _ only"
        yield finding(line, "agent-cut", value=quoted(value), read_as=read_as, fix=fix)


def _groups(outline: Outline) -> Iterator[Finding]:
    """Yield agents with several groups, and rules without effect."""
    first: dict[str, tuple[Group, int]] = {}  # of each agent: its group and line
    merged: dict[
        frozenset[str], list[RuleLine]
    ] = {}  # rules of groups with the same agents
    for group in outline.groups:
        for agent in group.agents:
            yield from _agent(agent)
            other, line = first.setdefault(agent.token, (group, agent.line))
            if agent.token and other is not group:
                name = shortened(agent.value)
                yield finding(agent.line, "split-group", agent=name, line=line)
        merged.setdefault(frozenset(agent.token for agent in group.agents), []).extend(
            group.rules
        )
        spelt: dict[str, RuleLine] = {}
        for rule in group.rules:
            yield from _pattern(rule)
            yield from _differs_in_case(
                rule, spelt.setdefault(rule.pattern.lower(), rule)
            )
    for rules in merged.values():
        yield from _never_decide(rules)


def _pattern(line: RuleLine) -> Iterator[Finding]:
    """Yield what is wrong with a pattern."""
    number, pattern, written = line.rule.line, line.pattern, line.rule.pattern
    if not can_match(pattern):
        if word_without_colon(line.rule.text):
            return
        if pattern:
            yield _never_matches(number, written)
        elif line.rule.allow:
            yield finding(number, "empty-allow")
        return
    if paths := joined_paths(pattern):
        yield finding(number, "rules-joined", path=quoted(paths[0]))
        return
    if BLANK.search(written):
        # An allow of an index page is also one of its directory, which has no blank in its name.
        if not (
            line.rule.allow
            and is_index(pattern)
            and not BLANK.search(directory_of(pattern))
        ):
            yield finding(number, "blank-in-rule", fix=_without_blank(written))
        return
    if part := regular_expression_in(pattern):
        yield finding(number, "regular-expression", part=quoted(part))
        return
    if has_inner_dollar(pattern):
        yield finding(number, "dollar-inside")
    if is_star_needless(pattern):
        yield finding(number, "trailing-star")


def _never_matches(number: int, written: str) -> Finding:
    why = "rules are paths, not URLs" if is_url(written) else "paths start with /"
    return finding(number, "never-matches", why=why, meant=quoted(path_meant(written)))


_FIELD_INSIDE = re.compile(
    r"[ \t](user-agent|disallow|allow|sitemap)[ \t]*:", re.IGNORECASE
)


def _without_blank(written: str) -> str:
    if field := _FIELD_INSIDE.search(written):
        return f'begin a new line before "{field[1]}:"'
    if re.search(r"[ \t]/", written):
        return "write each path on a line of its own; %20 for a blank that is part of a path"
    return "write %20 for the blank, or a rule that ends before it"


def _differs_in_case(line: RuleLine, other: RuleLine) -> Iterator[Finding]:
    """*other*: the first rule of the group that differs from *line* only in case, or itself."""
    if other.pattern != line.pattern:
        rule = shortened(str(other.rule))
        yield finding(line.rule.line, "case", line=other.rule.line, rule=rule)


def _never_decide(rules: list[RuleLine]) -> Iterator[Finding]:
    """Yield rules of a group that lose to another one whatever the URL. Only what can be proven: the
    other one matches exactly the same paths, and wins."""
    best: dict[Paths, RuleLine] = {}
    # As the matcher compares rules: the longest, then an allow, then the first.
    ranked = sorted(rules, key=lambda line: (-len(line.pattern), not line.rule.allow))
    for line in ranked:
        if not can_match(line.pattern):
            continue
        winner = best.setdefault(paths_of(line.pattern), line)
        if line is winner or _decides_for_directory(line, winner):
            continue
        here, there = line.rule, winner.rule
        if line.pattern == winner.pattern and here.allow == there.allow:
            yield finding(here.line, "duplicate", line=there.line)
        else:
            rule = shortened(str(there))
            yield finding(here.line, "shadowed", line=there.line, rule=rule)


def _decides_for_directory(line: RuleLine, winner: RuleLine) -> bool:
    """An allow of an index page also allows its directory. There, *winner* may lose to *line*: if it
    is a disallow, and if it stands below *line* (rules for one directory are equally long)."""
    if not line.rule.allow or not is_index(line.pattern):
        return False
    return not winner.rule.allow or winner.rule.line > line.rule.line
