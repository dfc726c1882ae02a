"""What the owner of a robots.txt would want to know about it, line by line (REP.md
sections 6 to 9).

>>> from scrapy_rep.inspection.lint import lint
>>> for finding in lint(b"User-agent: *\\nDissallow: /x\\nDisallow: private\\n"):
...     print(finding.line, finding.code, finding.message)
2 typo "Dissallow" is read as disallow here; other crawlers may ignore the line
3 never-matches can never match: paths start with /

Here are the checks of the file, of its lines and of its patterns; effects.py has those
of what crawlers may fetch, and findings.py has the sentence and the fix of each
finding. What is yielded here as ``finding(3, "typo", name=…)`` is the kind "typo"
there, about line 3, with its gaps filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

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

LintCheck = Callable[[bytes], Iterable[Finding]]
"""A further check for :func:`lint`: gets the part of the file that counts."""


def lint(
    body: bytes,
    *,
    robots_url: str | None = None,
    also: Sequence[LintCheck] = (),
) -> list[Finding]:
    """Return what there is to say about *body*, in the order of lines. Findings of one
    kind on the same topic are put together, as one finding with several lines.

    :param body: any bytes at all; the whole file, or as much of it as was fetched
    :param robots_url: where the file is from, to tell which sitemaps are on its own
        host
    :param also: further checks, of the part of the file that counts
    """
    findings = every_finding(body, robots_url=robots_url, also=also)
    kept = cut(body)
    texts = [row.decode("utf-8", "backslashreplace") for row in rows(kept)]
    # The finding "beyond-limit" may be about the line after the last one that counts.
    texts.append("")
    return grouped(findings, texts)


def every_finding(
    body: bytes,
    *,
    robots_url: str | None = None,
    also: Sequence[LintCheck] = (),
) -> Iterator[Finding]:
    """Yield all findings, one by one and in no order. The arguments are those of
    :func:`lint`."""
    kept = cut(body)
    outline = Outline.of(kept)
    yield from _file(body, kept, outline)
    if not _UTF16.match(body):
        yield from _single_lines(kept, outline)
    yield from _groups(outline)
    yield from effects(kept, outline, robots_url)
    for check in also:
        yield from check(kept)


# -- the file --------------------------------------------------------------------------------

# A byte order mark, or the beginning of one, which the parser (normalise in
# protocol/syntax.py) skips, too.
_BOM = re.compile(rb"\A\xef(?:\xbb\xbf?)?")

# How Windows' "Unicode" files begin: with a mark and a letter, of two bytes each.
_UTF16 = re.compile(rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]")


def rows(kept: bytes) -> list[bytes]:
    """Return the lines as they stand in the file, numbered as the parser numbers
    them."""
    text = _BOM.sub(b"", kept)
    text = text.replace(b"\r\n", b"\n")
    text = text.replace(b"\r", b"\n")
    return text.split(b"\n")


def _file(body: bytes, kept: bytes, outline: Outline) -> Iterator[Finding]:
    """Yield what is wrong with a file as a whole.

    :param body: the whole file
    :param kept: the part that counts
    :param outline: the lines of this part
    """
    if _UTF16.match(body):
        yield finding(1, "utf-16")
    elif _BOM.match(body):
        yield finding(1, "bom")
    if is_html(kept):
        effect = "it has no rules, so nothing is forbidden"
        if any(group.rules for group in outline.groups):
            effect = "the rules in it count"
        yield finding(None, "html", effect=effect)
    elif not outline.groups and not outline.ungrouped and not _UTF16.match(body):
        yield finding(None, "empty")
    if len(body) > MAX_BYTES:
        # The line that has the first byte beyond the limit is ignored as a whole. It is
        # the last of the lines up to that byte.
        first_line = len(rows(body[: MAX_BYTES + 1]))
        yield finding(first_line, "beyond-limit", limit=MAX_BYTES)


# -- lines -----------------------------------------------------------------------------------

# Fields about the use of pages, which preferences/lint.py checks.
_CHECKED_ELSEWHERE = ("content-signal", "content-usage", "license")

# What the value of each field that asks for a pause (DELAYS in effects.py) has to be.
_RIGHT_DELAY = {
    "crawl-delay": "a number of seconds",
    "request-rate": "a rate such as 1/10",
}

_NO_FIX = "nothing has to be done"


class _Advice(NamedTuple):
    """What fills in the kind "other-field" (findings.py)."""

    effect: str
    fix: str


# Fields that some crawlers read or have read, and Google's don't.
_FIELDS_OF_OTHERS = {
    "host": _Advice(
        "Google ignores host, and Yandex has done so since 2018",
        "redirect the other names of the site to the one that you prefer, and delete the line",
    ),
    "clean-param": _Advice(
        "Yandex reads clean-param; Google ignores it",
        "nothing has to be done for Yandex; tell Google by canonical links in the pages",
    ),
}

# Fields about the pages of search results. Google stopped reading the first of them in
# 2019.
_FIELDS_ABOUT_INDEXING = ("noindex", "nofollow", "noarchive", "nosnippet")

# A line that begins with a tag, a comment or a document type of HTML.
_MARKUP = re.compile(
    r"\s{0,99}<(?:!doctype|!--|/?[a-z][a-z0-9]{0,19}(?=[\s/>]|\Z))", re.IGNORECASE
)

# So many lines with markup are a page, rather than somebody's idea of a comment.
_MIN_LINES_OF_PAGE = 3

# How similar a name has to be to a field's, from 0 to 1 as difflib counts, to be a
# misspelling of it.
_CLOSE = 0.75

# How similar to a field's name the first words of a line without a colon have to be.
# The line may be a sentence, whose first word happens to resemble a field ("all",
# allow), so this is stricter.
_VERY_CLOSE = 0.85

# For this many lines of a file, we look for the field that may have been meant, which
# takes 0.1 ms for each line.
_MAX_GUESSES = 2_000

# Characters: so much of a name is compared with those of fields, which are shorter.
_MAX_COMPARED_NAME = 50


def _single_lines(kept: bytes, outline: Outline) -> Iterator[Finding]:
    """Yield what is wrong with lines one by one, and with a page of HTML among them."""
    texts = []  # the lines in latin-1, one character a byte, as the parser reads them
    for number, row in enumerate(rows(kept), 1):
        if len(row) > MAX_LINE:
            yield finding(number, "line-cut", length=len(row), limit=MAX_LINE)
        # The parser ignores what is beyond MAX_LINE, or from a NUL on.
        row, _, _ = row[:MAX_LINE].partition(b"\0")
        if row.decode("utf-8", "ignore").encode() != row:
            yield finding(number, "not-utf8")
        texts.append(row.decode("latin-1"))
    # The numbers of lines of HTML. Nothing else is said of these lines, unless they
    # have a known field.
    if is_html(kept):
        page = range(1, len(texts) + 1)
    else:
        page = _appended_page(texts, outline)
        if page:
            last = page.stop - 1
            yield finding(page.start, "html-appended", last=last)
    guesses_left = _MAX_GUESSES
    for number, text in enumerate(texts, 1):
        if number in outline.fields:
            field, value = outline.fields[number]
            yield from _line_with_field(number, text, field, value)
        elif number not in page and text:
            yield from _line_without_field(number, text, may_guess=guesses_left > 0)
            guesses_left -= 1
    for line in outline.ungrouped:
        yield finding(line.rule.line, "rule-before-group")


def _appended_page(texts: list[str], outline: Outline) -> range:
    """Return the numbers of the lines that are HTML within a file that begins as a
    robots.txt: from the first line with markup to the last one before the next field;
    none if it is no page."""
    page: list[int] = []
    for number, text in enumerate(texts, 1):
        if page and number in outline.fields:
            break
        if _MARKUP.match(text):
            page.append(number)
    if len(page) < _MIN_LINES_OF_PAGE:
        return range(0)
    return range(page[0], page[-1] + 1)


def _line_with_field(
    number: int,
    text: str,
    field: str,
    value: str,
) -> Iterator[Finding]:
    """Yield what is wrong with a line that has a known field.

    :param text: the line
    :param field: the field for which the parser takes it
    :param value: what the parser reads as its value
    """
    text = text.strip(SPACE)
    content, _, _ = text.partition("#")  # without the comment
    before_colon, colon, _ = content.partition(":")
    if field in RULES:
        yield from _comment_in_rule(number, text, content, value)
    # What the line has in place of the field's name is its "word".
    if not colon:
        word = content.split()[0]
        meant = _as_written(f"{word}: {value}")
        yield finding(number, "missing-colon", word=quoted(word), meant=meant)
    else:
        word = word_without_colon(content)
        if word:
            yield _later_colon(number, field, value, content, word)
        else:
            word = before_colon.strip(SPACE)
    # The parser takes some misspelt words for the field.
    if word.lower() != field:
        name = _as_written(word)
        yield finding(number, "typo", name=name, field=field)
    if field == "visit-time":
        effect = "Google ignores visit-time; a few crawlers obey it"
        yield finding(number, "other-field", topic=field, effect=effect, fix=_NO_FIX)
    elif field in DELAYS and DELAYS[field](value) is None:
        wrong = _as_written(value)
        right = _RIGHT_DELAY[field]
        yield finding(number, "bad-delay", value=wrong, right=right)


def _as_written(value: str) -> str:
    """Return a latin-1 text as its author wrote it, for use in a sentence: in quotes,
    cut to 60 characters."""
    return quoted(readable(value))


def word_without_colon(content: str) -> str:
    """Return the field name of a line whose colon stands further behind, as part of the
    value, as in ``Disallow /wiki/Special:Search``; "" for another line.

    :param content: the line without a comment
    """
    before_colon, colon, _ = content.partition(":")
    if not colon:
        return ""
    before_colon = before_colon.strip(SPACE)
    words = BLANK.split(before_colon)
    first_two = " ".join(words[:2])
    for name in (words[0], first_two):
        if name != before_colon and field_of(f"{name}:") is not None:
            return name
    return ""


def _later_colon(
    number: int,
    field: str,
    value: str,
    content: str,
    word: str,
) -> Finding:
    """Return the finding about a line whose first colon is part of what was meant as
    the value: ``Disallow /wiki/Special:Search`` is read as ``Disallow: Search``, and a
    URL loses its scheme.

    :param content: the line without a comment
    :param word: what the line begins with: a field's name, without a colon
    """
    read_as = _as_written(f"{field}: {value}")
    if field in RULES and not value:
        read_as += ", which restricts nothing"
    elif field in RULES and not can_match(value):
        read_as += ", which never matches"
    content = content.strip(SPACE)
    meant_value = content[len(word) :].strip(SPACE)
    is_path_read = value[:1] in ("/", "*")
    is_path_meant = meant_value[0] in "/*" or is_url(meant_value)
    if is_path_read and not is_path_meant:
        # As in "Disallow all: /x": what stands between the word and the colon is no
        # part of the path.
        meant_value = value
    meant = _as_written(f"{word}: {meant_value}")
    return finding(
        number,
        "later-colon",
        word=quoted(word),
        read_as=read_as,
        meant=meant,
    )


def _comment_in_rule(
    number: int,
    text: str,
    content: str,
    value: str,
) -> Iterator[Finding]:
    """Yield a rule with a ``#`` that stands where a path goes on. The ``#`` of a
    comment has a blank before or behind it.

    :param text: the line
    :param content: the line without a comment
    :param value: the value of the rule, as the parser reads it
    """
    if content == text:  # there is no "#"
        return
    after = text[len(content) + 1 :]  # the text after the "#"
    next_character = after[:1]
    if value:
        is_blank_before = content[-1] in SPACE
        is_in_path = not is_blank_before and next_character not in (" ", "\t", "#")
    else:
        # The value begins with the "#", as in "Disallow: #/x" or "Disallow: #!/x".
        is_in_path = next_character in ("/", "!")
    if is_in_path:
        read_as = _as_written(content.strip(SPACE))
        yield finding(number, "hash-cut", read_as=read_as)


def _line_without_field(
    number: int,
    text: str,
    *,
    may_guess: bool,
) -> Iterator[Finding]:
    """Yield what is wrong with a line that means nothing to the parser.

    :param may_guess: whether there is time to find out which field may have been meant
    """
    content, _, _ = text.partition("#")
    content = content.strip(SPACE)
    if not content:
        return
    name, colon, _ = content.partition(":")
    name = name.strip(SPACE)
    if colon:
        yield from _unknown_field(number, name, may_guess=may_guess)
        return
    first_words = BLANK.split(name, 2)[:2]
    field = None
    if may_guess:
        field = _closest(first_words[0], _VERY_CLOSE)
    if may_guess and field is None:
        joined = "-".join(first_words)  # "crawl delay 10": crawl-delay
        field = _closest(joined, _VERY_CLOSE)
    if field is not None:
        word = _as_written(first_words[0])
        yield finding(number, "line-ignored", word=word, meant=field)
    else:
        yield finding(number, "no-field")


def _unknown_field(number: int, name: str, *, may_guess: bool) -> Iterator[Finding]:
    """Yield what is wrong with a line of a field *name* that the parser doesn't
    know."""
    key = name.lower()
    if key in _CHECKED_ELSEWHERE:
        return
    if key in _FIELDS_OF_OTHERS:
        effect, fix = _FIELDS_OF_OTHERS[key]
        yield finding(number, "other-field", topic=key, effect=effect, fix=fix)
        return
    if key in _FIELDS_ABOUT_INDEXING:
        yield finding(number, "noindex-field", topic=key, name=key)
        return
    field = None
    if may_guess:
        field = _closest(name, _CLOSE)
    if may_guess and field is None:
        first_words = BLANK.split(name, 2)[:2]
        joined = "-".join(first_words)  # "crawl delay seconds: 10": crawl-delay
        field = _closest(joined, _CLOSE)
    shown_name = _as_written(name)
    if field is not None:
        yield finding(number, "misspelt-field", name=shown_name, meant=field)
    else:
        yield finding(number, "unknown-field", name=shown_name)


def _closest(name: str, closeness: float) -> str | None:
    """Return the field whose name is most like *name*; None if none reaches *closeness*
    (see _CLOSE)."""
    compared = name.lower()[:_MAX_COMPARED_NAME]
    fields = get_close_matches(compared, FIELDS, 1, closeness)
    return fields[0] if fields else None


# -- groups and patterns ---------------------------------------------------------------------


def _agent(agent: AgentLine) -> Iterator[Finding]:
    """Yield what is wrong with the name in a user-agent line, of which crawlers read
    only letters, - and _."""
    line = agent.line
    value = agent.value
    token = agent.token
    if not token:
        why = ""
        if value:
            why = f": {quoted(value)} does not start with a letter, - or _, as product tokens do"
        fix = 'write a product token, as in "User-agent: Googlebot", or * for all crawlers'
        if is_name(value):
            fix = "keep it if the crawler goes by this name: it may know itself; others read no name"
        yield finding(line, "agent-never", why=why, fix=fix)
    elif token == GLOBAL:
        if value == GLOBAL:
            return
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
    """Yield what is wrong with agents, agents with several groups, and rules without
    effect."""
    first_groups: dict[str, _FirstGroup] = {}  # by the token of the agent
    rules_by_tokens: dict[frozenset[str], list[RuleLine]] = {}
    for group in outline.groups:
        for agent in group.agents:
            yield from _agent(agent)
            group_and_line = _FirstGroup(group, agent.line)
            first = first_groups.setdefault(agent.token, group_and_line)
            if agent.token and first.group is not group:
                name = shortened(agent.value)
                yield finding(agent.line, "split-group", agent=name, line=first.line)
        # Groups with the same agents are one group to the parser.
        tokens = frozenset(agent.token for agent in group.agents)
        merged_rules = rules_by_tokens.setdefault(tokens, [])
        merged_rules += group.rules
        first_spelling: dict[str, RuleLine] = {}
        for rule in group.rules:
            yield from _pattern(rule)
            lower_case = rule.pattern.lower()
            first_rule = first_spelling.setdefault(lower_case, rule)
            yield from _differs_in_case(rule, first_rule)
    for rules in rules_by_tokens.values():
        yield from _never_decide(rules)


class _FirstGroup(NamedTuple):
    """The first group that names an agent."""

    group: Group
    line: int
    """The number of the user-agent line that names it."""


def _pattern(line: RuleLine) -> Iterator[Finding]:
    """Yield what is wrong with a rule's pattern. A grave mistake hides lesser ones."""
    number = line.rule.line
    pattern = line.pattern
    written = line.rule.pattern
    if not can_match(pattern):
        if word_without_colon(line.rule.text):
            return  # the finding "later-colon" says more
        if pattern:
            yield _never_matches(number, written)
        elif line.rule.allow:
            yield finding(number, "empty-allow")
        return
    paths = joined_paths(pattern)
    if paths:
        yield finding(number, "rules-joined", path=quoted(paths[0]))
        return
    if BLANK.search(written):
        # An allow of an index page, as in "/my index.html", also allows its directory.
        # So it matches something, unless the blank is in the directory's name.
        allows_directory = line.rule.allow and is_index(pattern)
        if not allows_directory or BLANK.search(directory_of(pattern)):
            yield finding(number, "blank-in-rule", fix=_without_blank(written))
        return
    part = regular_expression_in(pattern)
    if part:
        yield finding(number, "regular-expression", part=quoted(part))
        return
    if has_inner_dollar(pattern):
        yield finding(number, "dollar-inside")
    if is_star_needless(pattern):
        yield finding(number, "trailing-star")


def _never_matches(number: int, written: str) -> Finding:
    """Return the finding about a pattern, as *written*, that begins neither with / nor
    with a star."""
    why = "rules are paths, not URLs" if is_url(written) else "paths start with /"
    meant = quoted(path_meant(written))
    return finding(number, "never-matches", why=why, meant=meant)


# A field in the middle of a rule.
_FIELD_INSIDE = re.compile(
    r"[ \t](user-agent|disallow|allow|sitemap)[ \t]*:", re.IGNORECASE
)


def _without_blank(written: str) -> str:
    """Return what to do about a pattern with a blank in it."""
    field = _FIELD_INSIDE.search(written)
    if field is not None:
        return f'begin a new line before "{field[1]}:"'
    if re.search(r"[ \t]/", written):
        return "write each path on a line of its own; %20 for a blank that is part of a path"
    return "write %20 for the blank, or a rule that ends before it"


def _differs_in_case(line: RuleLine, first: RuleLine) -> Iterator[Finding]:
    """Yield a rule that differs from another one only in case.

    :param first: the first rule of the group with this pattern, whatever its case:
        *line* itself, or another one
    """
    if first.pattern != line.pattern:
        first_rule = first.rule
        rule = shortened(str(first_rule))
        yield finding(line.rule.line, "case", line=first_rule.line, rule=rule)


def _never_decide(rules: list[RuleLine]) -> Iterator[Finding]:
    """Yield rules of a group that lose to another rule whatever the URL. Only those are
    found for which this can be proven: the other rule matches exactly the same paths,
    and wins."""
    # The rules that win, by the paths that they match.
    winners: dict[Paths, RuleLine] = {}
    for line in sorted(rules, key=_rank):
        if not can_match(line.pattern):
            continue
        winner = winners.setdefault(paths_of(line.pattern), line)
        # An allow of an index page also allows its directory, where it may win.
        if line is winner or _decides_for_directory(line, winner):
            continue
        number = line.rule.line
        winning_line = winner.rule.line
        if line.pattern == winner.pattern and line.rule.allow == winner.rule.allow:
            yield finding(number, "duplicate", line=winning_line)
        else:
            rule = shortened(str(winner.rule))
            yield finding(number, "shadowed", line=winning_line, rule=rule)


def _rank(line: RuleLine) -> tuple[int, bool]:
    """Return a key to sort rules by, as the matcher ranks them: the longest first; of
    equally long rules, an allow first. Of equal keys, the first rule in the file stays
    first."""
    return -len(line.pattern), not line.rule.allow


def _decides_for_directory(line: RuleLine, winner: RuleLine) -> bool:
    """Return whether *line* may win in a directory although *winner* wins for all paths
    that both match.

    An allow of an index page also allows its directory. There, *winner* loses to *line*
    if *winner* is a disallow, or stands below *line* (the two rules that the matcher
    makes for the directory are equally long, so the first wins).
    """
    rule = line.rule
    winning_rule = winner.rule
    if not rule.allow or not is_index(line.pattern):
        return False
    return not winning_rule.allow or winning_rule.line > rule.line
