"""What lint can find: each kind with its severity, its sentence and its fix; and how findings of one
kind are put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

ERROR, WARNING, NOTE = SEVERITIES = ("error", "warning", "note")


class Kind(NamedTuple):
    """A kind of finding. The texts are formats, filled by :func:`finding`."""

    severity: str
    """``error``: it doesn't do what it says. ``warning``: probably not what is meant, or not for
    all crawlers. ``note``: worth knowing."""
    sentence: str
    fix: str
    """What to do about it, in one line."""


KINDS = {
    # The file as a whole.
    "html": Kind(
        ERROR,
        "a page of HTML or XML, not a robots.txt: {effect}",
        "serve plain text at /robots.txt, or status 404 if there is no such file",
    ),
    "html-appended": Kind(
        ERROR,
        "from this line to line {last} the file is HTML, which means nothing in a robots.txt",
        "delete these lines: something appends a page to the file, or cuts into one",
    ),
    "utf-16": Kind(
        ERROR,
        "the file is UTF-16, but is read as UTF-8",
        "save it as UTF-8",
    ),
    "beyond-limit": Kind(
        ERROR,
        "from this line on the file is ignored: only the first {limit:,} bytes count",
        "shorten the file: replace rules for single pages by rules for their folders",
    ),
    "bom": Kind(
        WARNING,
        "byte order mark: skipped here, but other crawlers may miss the first line",
        "save the file as UTF-8 without a byte order mark",
    ),
    "not-utf8": Kind(
        WARNING,
        "not UTF-8: bytes are percent-encoded one by one",
        "save the file as UTF-8",
    ),
    "empty": Kind(
        WARNING,
        "the file has no rules: no restrictions",
        'to say that everything is open, write "User-agent: *" and below it "Disallow:"',
    ),
    "only-allows": Kind(
        NOTE,
        "the rules only allow, and what no rule forbids is allowed anyway: nothing is forbidden",
        'if crawlers are to stay away from everything else, add "Disallow: /"',
    ),
    "no-file": Kind(
        NOTE,
        "no robots.txt ({answer}): no restrictions",
        "none needed; a file is needed only if something is to be forbidden",
    ),
    # Lines that are read in another way than they seem to be, or not at all.
    "line-cut": Kind(
        ERROR,
        "{length:,} bytes long: only the first {limit:,} count",
        "write several shorter lines",
    ),
    "rule-before-group": Kind(
        ERROR,
        "ignored: no user-agent line above it",
        'put a line "User-agent: *" above it, or one for each crawler that it is for',
    ),
    "delay-before-group": Kind(
        ERROR,
        "applies to no crawler: no user-agent line above it",
        "move it below the user-agent line of the crawlers that it is for",
    ),
    "line-ignored": Kind(
        ERROR,
        "ignored: no colon after {word}",
        "write a colon after it: {meant}: …",
    ),
    "later-colon": Kind(
        ERROR,
        "no colon after {word}, so the line is split at a later one, and read as {read_as}",
        "write {meant}",
    ),
    "misspelt-field": Kind(
        ERROR,
        "ignored: unknown field {name}",
        "did you mean {meant}?",
    ),
    "hash-cut": Kind(
        ERROR,
        "# begins a comment, even within a path: read as {read_as}",
        "delete the line if a fragment is meant, which crawlers don't send; or write %23 for the #",
    ),
    "missing-colon": Kind(
        WARNING,
        "no colon after {word}: accepted here, but not by all crawlers",
        "write {meant}",
    ),
    "typo": Kind(
        WARNING,
        "{name} is read as {field} here; other crawlers may ignore the line",
        "write {field}",
    ),
    "unknown-field": Kind(
        WARNING,
        "ignored: {name} is no field of the standard",
        "delete the line, or write # before it",
    ),
    "no-field": Kind(
        WARNING,
        "ignored: neither a field nor a comment",
        "delete the line, or write # before it",
    ),
    "noindex-field": Kind(
        WARNING,
        "ignored: {name} in a robots.txt means nothing to Google since September 2019",
        "use a robots meta tag or an X-Robots-Tag header on the pages, and let crawlers fetch them",
    ),
    "other-field": Kind(NOTE, "{effect}", "{fix}"),
    "other-delay": Kind(
        NOTE,
        "asks {agents} to wait {seconds:g} s between two requests, which Google ignores",
        "nothing has to be done",
    ),
    "bad-delay": Kind(
        ERROR,
        "{value} is not {right}: nobody is asked to wait",
        "write {right}",
    ),
    # Names of crawlers.
    "agent-never": Kind(
        ERROR,
        "names no crawler{why}",
        "{fix}",
    ),
    "agent-cut": Kind(
        WARNING,
        "{value} is read as {read_as}",
        "{fix}",
    ),
    "split-group": Kind(
        NOTE,
        "{agent} already has a group on line {line}: merged with it here, but not by all crawlers",
        "move the rules of this group to that one",
    ),
    "joined-agents": Kind(
        WARNING,
        "only {gap} between this line and the user-agent lines above, which ends no group: "
        "{agents} also {obey} line {line} ({rule})",
        'write rules for them above this line, "Disallow:" if nothing is forbidden to them',
    ),
    "empty-group": Kind(
        NOTE,
        "the group has no rules: {agents} may fetch everything",
        'write "Disallow:" if that is meant, otherwise rules',
    ),
    # Patterns.
    "never-matches": Kind(ERROR, "can never match: {why}", "did you mean {meant}?"),
    "blank-in-rule": Kind(
        ERROR,
        "crawlers send blanks percent-encoded, so this matches nothing",
        "{fix}",
    ),
    "rules-joined": Kind(
        ERROR,
        "one rule, with a comma in it: it doesn't match {path}",
        "write each path on a line of its own",
    ),
    "regular-expression": Kind(
        WARNING,
        "{part} is read as plain characters, not as a regular expression",
        "only * (any characters) and a $ at the end (the end of the URL) are special: write "
        "several rules",
    ),
    "dollar-inside": Kind(
        WARNING,
        "a $ that isn't the last character is a plain dollar sign",
        "let the rule end with the $ if the end of the URL is meant, and otherwise delete it",
    ),
    "empty-allow": Kind(
        WARNING,
        "an empty Allow permits nothing and restricts nothing",
        'write "Allow: /" or "Disallow:" if everything is open, "Disallow: /" if nothing is',
    ),
    "shadowed": Kind(
        WARNING,
        "never decides: line {line} ({rule}) matches the same URLs and wins",
        "delete the one of the two that isn't meant",
    ),
    "duplicate": Kind(NOTE, "same rule as on line {line}", "delete one of the two"),
    "case": Kind(
        NOTE,
        "differs from line {line} ({rule}) only in case; paths are case-sensitive, so these are "
        "two rules",
        "delete the one whose path doesn't exist, if both aren't meant",
    ),
    "trailing-star": Kind(
        NOTE,
        "the * at the end matches nothing more; it only makes the rule longer, and the longest "
        "rule wins",
        "delete the *, unless the rule has to win over another one that is as long",
    ),
    # What crawlers may fetch.
    "site-closed": Kind(
        WARNING,
        "the whole site is closed to all crawlers{exception}",
        "if search engines are to find the site, delete this line, or allow what they may fetch",
    ),
    "engine-closed": Kind(
        WARNING,
        "the whole site is closed to {agents}, while crawlers without a group of their own may "
        "fetch {path}",
        "delete this line if the site is to be found there",
    ),
    "lost-rules": Kind(
        WARNING,
        "{agents} may fetch {lost}: a crawler with a group of its own ignores the * group",
        'repeat these rules in this group, or add "Disallow:" to say that everything is open',
    ),
    "blocked-assets": Kind(
        WARNING,
        "hides style sheets or scripts such as {path} from {agents}: a search engine may then see "
        "a page differently from people",
        "delete the line, or allow these files by rules that are longer",
    ),
    # Sitemaps.
    "bad-sitemap": Kind(
        ERROR,
        "ignored: {why}",
        'write the whole URL, as in "Sitemap: https://www.example.com/sitemap.xml"',
    ),
    "sitemaps-joined": Kind(
        ERROR,
        "several sitemaps on one line are read as one URL",
        "write each on a sitemap line of its own",
    ),
    "relative-sitemap": Kind(
        WARNING,
        "not a full URL, which the standard asks for; read as relative to robots.txt",
        "write the whole URL, with https:// and the host",
    ),
    "sitemap-disallowed": Kind(
        WARNING,
        "{condition}this file forbids it to {whom}",
        "allow it by a longer rule, or move it to where they may fetch it",
    ),
    # How pages may be used: see preferences/lint.py.
    "bad-usage": Kind(
        ERROR, "{why}", 'write it as in "Content-Usage: train-ai=n, search=y"'
    ),
    "bad-signal": Kind(
        ERROR, "{why}", 'write it as in "Content-Signal: ai-train=no, search=yes"'
    ),
    "bad-license": Kind(
        ERROR, "a license needs a full URL", "write the whole URL, with https://"
    ),
    "unknown-use": Kind(
        WARNING, "ignored: unknown purpose {name}{hint}", "known are {known}"
    ),
    "signal-before-group": Kind(
        WARNING,
        "no user-agent line above it: applied to all crawlers here, but other parsers may ignore it",
        'move it below a line "User-agent: *"',
    ),
    "not-checked": Kind(
        NOTE, "Content-Usage is not checked: {extra}", "install the extra usage"
    ),
}


class Finding(NamedTuple):
    """Something that the owner of a robots.txt would want to know."""

    line: int | None
    """From 1; None for the whole file."""
    code: str
    """The kind of finding, for filters: docs/check.md lists them."""
    message: str
    fix: str = ""
    """What to do about it."""
    agents: tuple[str, ...] = ()
    """The crawlers that it concerns, ``*`` for those without a group of their own. Empty: a matter
    of the line, for any crawler."""
    lines: tuple[int, ...] = ()
    """All lines with a finding of this kind. The rest is about the first of them."""
    text: str = ""
    """The line as it stands in the file; bytes that are not UTF-8 as ``\\xNN``."""
    topic: str = ""
    """Findings with the same code and topic are put together."""

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
    """Return a finding of a kind, with *values* in its texts. *topic*: see :class:`Finding`."""
    kind = KINDS[code]
    values["agents"] = some(agents)
    values["obey"] = "obeys" if len(agents) == 1 else "obey"
    message = kind.sentence.format(**values)
    return Finding(
        line, code, message, kind.fix.format(**values), tuple(agents), topic=topic
    )


# A code may have this many topics in a file. Findings with further topics join the last of these.
_MAX_TOPICS = 8


def grouped(findings: Iterable[Finding], rows: Sequence[str]) -> list[Finding]:
    """Return one finding for each code and topic, with all its lines, in the order of the first
    lines. *rows*: the lines of the file."""
    lines: dict[tuple[str, str], list[int]] = {}
    first: dict[tuple[str, str], Finding] = {}
    topics: dict[str, list[str]] = {}
    for item in sorted(findings, key=lambda item: item.line or 0):
        known = topics.setdefault(item.code, [])
        if item.topic in known:
            topic = item.topic
        elif len(known) < _MAX_TOPICS:
            known.append(item.topic)
            topic = item.topic
        else:
            topic = known[-1]
        key = item.code, topic
        first.setdefault(key, item)
        numbers = lines.setdefault(key, [])
        if item.line is not None and item.line not in numbers[-1:]:
            numbers.append(item.line)
    result = []
    for key, item in first.items():
        text = rows[item.line - 1] if item.line else ""
        result.append(item._replace(lines=tuple(lines[key]), text=text))
    return result


# Names in a sentence, and characters of something that is quoted.
_NAMED = 3
_QUOTED = 60


def some(names: Sequence[str]) -> str:
    """Return the first few of *names*, and how many more there are."""
    others = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + others


def quoted(text: str) -> str:
    """Return *text* in quotes, cut to 60 characters."""
    return f'"{shortened(text)}"'


def shortened(text: str) -> str:
    return text if len(text) <= _QUOTED else text[:_QUOTED] + "…"
