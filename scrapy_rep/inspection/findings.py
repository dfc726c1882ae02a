"""What lint can find: each kind with its severity, its sentence and its fix; and how
findings of one kind are put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ERROR = "error"
"""The line doesn't do what it says."""

WARNING = "warning"
"""Probably not what is meant, or not for all crawlers."""

NOTE = "note"
"""Worth knowing."""

SEVERITIES = (ERROR, WARNING, NOTE)
"""The gravest first."""

# The findings of one code may have this many topics in a file (see Finding.topic).
# Findings with further topics join the last of these.
_MAX_TOPICS = 8

# A sentence names this many crawlers, URLs or fields, and says how many more there are.
_MAX_NAMED = 3

# Characters: so much is shown of something that is quoted.
_MAX_QUOTED = 60


class FindingKind(NamedTuple):
    """A kind of finding. The texts are formats, filled by :func:`finding`."""

    severity: str
    """One of :data:`SEVERITIES`."""
    sentence: str
    """What is found, as it is printed behind the line's number."""
    fix: str
    """What to do about it, in one line."""


KINDS = {
    # The file as a whole.
    "html": FindingKind(
        ERROR,
        "a page of HTML or XML, not a robots.txt: {effect}",
        "serve plain text at /robots.txt, or status 404 if there is no such file",
    ),
    "html-appended": FindingKind(
        ERROR,
        "from this line to line {last} the file is HTML, which means nothing in a robots.txt",
        "delete these lines: something appends a page to the file, or cuts into one",
    ),
    "utf-16": FindingKind(
        ERROR,
        "the file is UTF-16, but is read as UTF-8",
        "save it as UTF-8",
    ),
    "beyond-limit": FindingKind(
        ERROR,
        "from this line on the file is ignored: only the first {limit:,} bytes count",
        "shorten the file: replace rules for single pages by rules for their folders",
    ),
    "bom": FindingKind(
        WARNING,
        "byte order mark: skipped here, but other crawlers may miss the first line",
        "save the file as UTF-8 without a byte order mark",
    ),
    "not-utf8": FindingKind(
        WARNING,
        "not UTF-8: bytes are percent-encoded one by one",
        "save the file as UTF-8",
    ),
    "empty": FindingKind(
        WARNING,
        "the file has no rules: no restrictions",
        'to say that everything is open, write "User-agent: *" and below it "Disallow:"',
    ),
    "only-allows": FindingKind(
        NOTE,
        "the rules only allow, and what no rule forbids is allowed anyway: nothing is forbidden",
        'if crawlers are to stay away from everything else, add "Disallow: /"',
    ),
    "no-file": FindingKind(
        NOTE,
        "no robots.txt ({answer}): no restrictions",
        "none needed; a file is needed only if something is to be forbidden",
    ),
    # Lines that are read in another way than they seem to be, or not at all.
    "line-cut": FindingKind(
        ERROR,
        "{length:,} bytes long: only the first {limit:,} count",
        "write several shorter lines",
    ),
    "rule-before-group": FindingKind(
        ERROR,
        "ignored: no user-agent line above it",
        'put a line "User-agent: *" above it, or one for each crawler that it is for',
    ),
    "delay-before-group": FindingKind(
        ERROR,
        "applies to no crawler: no user-agent line above it",
        "move it below the user-agent line of the crawlers that it is for",
    ),
    "line-ignored": FindingKind(
        ERROR,
        "ignored: no colon after {word}",
        "write a colon after it: {meant}: …",
    ),
    "later-colon": FindingKind(
        ERROR,
        "no colon after {word}, so the line is split at a later one, and read as {read_as}",
        "write {meant}",
    ),
    "misspelt-field": FindingKind(
        ERROR,
        "ignored: unknown field {name}",
        "did you mean {meant}?",
    ),
    "hash-cut": FindingKind(
        ERROR,
        "# begins a comment, even within a path: read as {read_as}",
        "delete the line if a fragment is meant, which crawlers don't send; or write %23 for the #",
    ),
    "missing-colon": FindingKind(
        WARNING,
        "no colon after {word}: accepted here, but not by all crawlers",
        "write {meant}",
    ),
    "typo": FindingKind(
        WARNING,
        "{name} is read as {field} here; other crawlers may ignore the line",
        "write {field}",
    ),
    "unknown-field": FindingKind(
        WARNING,
        "ignored: {name} is no field of the standard",
        "delete the line, or write # before it",
    ),
    "no-field": FindingKind(
        WARNING,
        "ignored: neither a field nor a comment",
        "delete the line, or write # before it",
    ),
    "noindex-field": FindingKind(
        WARNING,
        "ignored: {name} in a robots.txt means nothing to Google since September 2019",
        "use a robots meta tag or an X-Robots-Tag header on the pages, and let crawlers fetch them",
    ),
    "other-field": FindingKind(NOTE, "{effect}", "{fix}"),
    "other-delay": FindingKind(
        NOTE,
        "asks {agents} to wait {seconds:g} s between two requests, which Google ignores",
        "nothing has to be done",
    ),
    "bad-delay": FindingKind(
        ERROR,
        "{value} is not {right}: nobody is asked to wait",
        "write {right}",
    ),
    # Names of crawlers.
    "agent-never": FindingKind(
        ERROR,
        "names no crawler{why}",
        "{fix}",
    ),
    "agent-cut": FindingKind(
        WARNING,
        "{value} is read as {read_as}",
        "{fix}",
    ),
    "split-group": FindingKind(
        NOTE,
        "{agent} already has a group on line {line}: merged with it here, but not by all crawlers",
        "move the rules of this group to that one",
    ),
    "joined-agents": FindingKind(
        WARNING,
        "only {gap} between this line and the user-agent lines above, which ends no group: "
        "{agents} also {obey} line {line} ({rule})",
        'write rules for them above this line, "Disallow:" if nothing is forbidden to them',
    ),
    "empty-group": FindingKind(
        NOTE,
        "the group has no rules: {agents} may fetch everything",
        'write "Disallow:" if that is meant, otherwise rules',
    ),
    # Patterns.
    "never-matches": FindingKind(
        ERROR, "can never match: {why}", "did you mean {meant}?"
    ),
    "blank-in-rule": FindingKind(
        ERROR,
        "crawlers send blanks percent-encoded, so this matches nothing",
        "{fix}",
    ),
    "rules-joined": FindingKind(
        ERROR,
        "one rule, with a comma in it: it doesn't match {path}",
        "write each path on a line of its own",
    ),
    "regular-expression": FindingKind(
        WARNING,
        "{part} is read as plain characters, not as a regular expression",
        "only * (any characters) and a $ at the end (the end of the URL) are special: write "
        "several rules",
    ),
    "dollar-inside": FindingKind(
        WARNING,
        "a $ that isn't the last character is a plain dollar sign",
        "let the rule end with the $ if the end of the URL is meant, and otherwise delete it",
    ),
    "empty-allow": FindingKind(
        WARNING,
        "an empty Allow permits nothing and restricts nothing",
        'write "Allow: /" or "Disallow:" if everything is open, "Disallow: /" if nothing is',
    ),
    "shadowed": FindingKind(
        WARNING,
        "never decides: line {line} ({rule}) matches the same URLs and wins",
        "delete the one of the two that isn't meant",
    ),
    "duplicate": FindingKind(
        NOTE, "same rule as on line {line}", "delete one of the two"
    ),
    "case": FindingKind(
        NOTE,
        "differs from line {line} ({rule}) only in case; paths are case-sensitive, so these are "
        "two rules",
        "delete the one whose path doesn't exist, if both aren't meant",
    ),
    "trailing-star": FindingKind(
        NOTE,
        "the * at the end matches nothing more; it only makes the rule longer, and the longest "
        "rule wins",
        "delete the *, unless the rule has to win over another one that is as long",
    ),
    # What crawlers may fetch.
    "site-closed": FindingKind(
        WARNING,
        "the whole site is closed to all crawlers{exception}",
        "if search engines are to find the site, delete this line, or allow what they may fetch",
    ),
    "engine-closed": FindingKind(
        WARNING,
        "the whole site is closed to {agents}, while crawlers without a group of their own may "
        "fetch {path}",
        "delete this line if the site is to be found there",
    ),
    "lost-rules": FindingKind(
        WARNING,
        "{agents} may fetch {lost}: a crawler with a group of its own ignores the * group",
        'repeat these rules in this group, or add "Disallow:" to say that everything is open',
    ),
    "blocked-assets": FindingKind(
        WARNING,
        "hides style sheets or scripts such as {path} from {agents}: a search engine may then see "
        "a page differently from people",
        "delete the line, or allow these files by rules that are longer",
    ),
    # Sitemaps.
    "bad-sitemap": FindingKind(
        ERROR,
        "ignored: {why}",
        'write the whole URL, as in "Sitemap: https://www.example.com/sitemap.xml"',
    ),
    "sitemaps-joined": FindingKind(
        ERROR,
        "several sitemaps on one line are read as one URL",
        "write each on a sitemap line of its own",
    ),
    "relative-sitemap": FindingKind(
        WARNING,
        "not a full URL, which the standard asks for; read as relative to robots.txt",
        "write the whole URL, with https:// and the host",
    ),
    "sitemap-disallowed": FindingKind(
        WARNING,
        "{condition}this file forbids it to {whom}",
        "allow it by a longer rule, or move it to where they may fetch it",
    ),
    # How pages may be used: see preferences/lint.py.
    "bad-usage": FindingKind(
        ERROR, "{why}", 'write it as in "Content-Usage: train-ai=n, search=y"'
    ),
    "bad-signal": FindingKind(
        ERROR, "{why}", 'write it as in "Content-Signal: ai-train=no, search=yes"'
    ),
    "bad-license": FindingKind(
        ERROR, "a license needs a full URL", "write the whole URL, with https://"
    ),
    "unknown-use": FindingKind(
        WARNING, "ignored: unknown purpose {name}{hint}", "known are {known}"
    ),
    "signal-before-group": FindingKind(
        WARNING,
        "no user-agent line above it: applied to all crawlers here, but other parsers may ignore it",
        'move it below a line "User-agent: *"',
    ),
    "not-checked": FindingKind(
        NOTE, "Content-Usage is not checked: {extra}", "install the extra usage"
    ),
}


class Finding(NamedTuple):
    """Something that the owner of a robots.txt would want to know."""

    line: int | None
    """Counted from 1; None for the whole file."""
    code: str
    """The kind of finding, a key of :data:`KINDS`. docs/check.md lists them, for
    filters."""
    message: str
    fix: str = ""
    """What the owner is to do about the finding."""
    agents: tuple[str, ...] = ()
    """The crawlers that the finding concerns, ``*`` for those without a group of their
    own. Empty if it concerns any crawler."""
    lines: tuple[int, ...] = ()
    """All lines with a finding of this code and topic. Only :func:`grouped` fills them
    in. The other fields are about the first of the lines."""
    text: str = ""
    """The line as it stands in the file; bytes that are not UTF-8 as ``\\xNN``. Only
    :func:`grouped` fills it in."""
    topic: str = ""
    """Tells findings of one code apart, for example by the crawlers that they are
    about. Of findings with the same code and topic, :func:`grouped` makes one."""

    @property
    def severity(self) -> str:
        return KINDS[self.code].severity


def finding(
    line: int | None,
    code: str,
    /,
    *,
    agents: Sequence[str] = (),
    topic: str = "",
    **values: object,
) -> Finding:
    """Return a finding of the kind ``KINDS[code]``, about a line (None: the whole
    file).

    :param agents: the crawlers that it concerns
    :param topic: as in :class:`Finding`
    :param values: what fills the gaps in the kind's sentence and fix; added to them are
        ``agents`` and ``obey``, the verb that goes with the agents
    """
    kind = KINDS[code]
    values["agents"] = first_few(agents)
    values["obey"] = "obeys" if len(agents) == 1 else "obey"
    message = kind.sentence.format(**values)
    fix = kind.fix.format(**values)
    return Finding(line, code, message, fix, tuple(agents), topic=topic)


class _Group(NamedTuple):
    """Findings with the same code and topic."""

    first: Finding
    """The one with the lowest line."""
    lines: list[int]
    """The lines of all findings of the group, in order."""


def grouped(findings: Iterable[Finding], rows: Sequence[str]) -> list[Finding]:
    """Return one finding for each code and topic, with all its lines, in the order of
    the first lines.

    :param rows: the lines of the file
    """
    groups: dict[tuple[str, str], _Group] = {}
    topics_by_code: dict[str, list[str]] = {}
    for item in sorted(findings, key=_line_or_zero):
        # A finding whose topic is one too many joins those of the last topic.
        topics = topics_by_code.setdefault(item.code, [])
        topic = item.topic
        if topic not in topics:
            if len(topics) < _MAX_TOPICS:
                topics.append(topic)
            else:
                topic = topics[-1]
        group = groups.setdefault((item.code, topic), _Group(item, []))
        # Several findings of one line follow one another, since they are sorted.
        if item.line is not None and item.line not in group.lines[-1:]:
            group.lines.append(item.line)
    result = []
    for first, lines in groups.values():
        text = rows[first.line - 1] if first.line else ""  # lines are counted from 1
        result.append(first._replace(lines=tuple(lines), text=text))
    return result


def _line_or_zero(item: Finding) -> int:
    """Return a key to sort findings by: those about the whole file before those about
    lines."""
    return item.line or 0


def first_few(names: Sequence[str]) -> str:
    """Return the first three of *names*, and how many more there are."""
    text = ", ".join(names[:_MAX_NAMED])
    if len(names) > _MAX_NAMED:
        text += f" and {len(names) - _MAX_NAMED:,} more"
    return text


def quoted(text: str) -> str:
    """Return *text* in quotes, cut to 60 characters."""
    return f'"{shortened(text)}"'


def shortened(text: str) -> str:
    """Return *text*, cut to 60 characters."""
    return text if len(text) <= _MAX_QUOTED else text[:_MAX_QUOTED] + "…"
