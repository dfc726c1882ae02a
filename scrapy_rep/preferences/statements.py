"""Reads all statements about the use of a page, wherever they are, and tells what they
say together (REP.md section 11).

- ``Content-Usage``: draft-ietf-aipref-vocab-08, September 2026, has its words (07, of
  August, has no ``ai-use``), and draft-ietf-aipref-attach-05, August 2026, puts them
  into robots.txt and a header. The syntax is a dictionary of structured fields (RFC
  9651). In robots.txt it is a rule: a ``user-agent`` line after it begins a new group.
  ``Content-Signal`` is a rule here, too. Neither changes which pages may be fetched.
- ``Content-Signal``: Cloudflare's Content Signals Policy, September 2025,
  contentsignals.org; draft-romm-aipref-contentsignals-00, October 2025, expired.
  Cloudflare has sent it as a header since February 2026 (Markdown for Agents); sites
  that move it out of robots.txt do so, too.
- ``noai`` and ``noimageai`` in ``X-Robots-Tag`` and metas: DeviantArt, November 2022;
  ``noml``: noml.info, October 2023. There is no specification of these.
- Policy tokens: robots.txt has groups for these names, such as ``Google-Extended``
  (Google, September 2023), ``Applebot-Extended`` (Apple, June 2024) or ``CCBot``, to
  say how pages may be used. Only the companies that honour them describe what they
  mean.
- Licenses: RSL 1.0, Really Simple Licensing, December 2025. Their URLs are reported,
  never fetched.
- The TDM Reservation Protocol: W3C Community Group Final Report, 10 May 2024. Metas
  take precedence over headers, headers over ``/.well-known/tdmrep.json``. A reservation
  is 1 or 0; 0 permits nothing, but only says that nothing is reserved in this protocol.

Statements are combined as draft-ietf-aipref-vocab-08, "Combining Preferences", asks:
``n`` takes precedence over ``y``; without either, nothing is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from scrapy_rep.protocol.matching import (
    LENGTH_BIT,
    SHORTEST,
    Decision,
    Rules,
    disallow_number,
)
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.robotstxt import Groups
from scrapy_rep.protocol.syntax import GLOBAL, SPACE, normalise, readable

TRAINING = "train-ai"
"""Training of generative AI on the page."""
IMAGES = "train-ai-images"
"""Training of generative AI on the page's images."""
INPUT = "ai-input"
"""Input to an AI that answers questions."""
SEARCH = "search"
"""Search results with excerpts and links."""
MINING = "tdm"
"""Text and data mining."""

PURPOSES = (TRAINING, IMAGES, INPUT, SEARCH, MINING)
"""All purposes that a statement may permit or refuse."""

YES = "y"
"""The answer of a statement that permits a purpose."""
NO = "n"
"""The answer of a statement that refuses a purpose."""

MAX_STATEMENT_TEXT = 1_000
"""At most this many characters of a statement are kept for the record, since a line may
be as long as its file."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of robots.txt, one header or one meta that is about use."""

    source: str
    """``robots.txt``, ``robots.txt for CCBot``, ``header Content-Usage``, ``meta
    robots``, …"""
    line: int | None
    """The line of robots.txt or of the HTML, counted from 1; None for headers."""
    text: str
    """The line of robots.txt, or the value of the header or meta, as written."""
    says: dict[str, str] = field(default_factory=dict)
    """``"y"`` or ``"n"`` by purpose. Empty if it says nothing that is understood."""

    def __str__(self) -> str:
        if self.line is None:
            return f"{self.source}: {self.text}"
        return f"{self.source}, line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Usage:
    """How a page may be used: ``usage["train-ai"]`` is ``"y"``, ``"n"`` or None."""

    statements: tuple[Statement, ...] = ()
    """All statements that apply to the page, those of robots.txt first."""
    licenses: tuple[str, ...] = ()
    """URLs of RSL licenses. Never fetched."""
    tdm_policy: str | None = None
    """URL of the policy under which text and data mining is licensed. Never fetched."""
    robots_sha256: str | None = None
    """Hash of the robots.txt that was read. None if no robots.txt is known."""
    robots_fetched_at: datetime | None = None
    tdmrep_sha256: str | None = None
    """Hash of ``/.well-known/tdmrep.json``. None if it was not read."""
    time: datetime | None = None
    """When all this was looked up."""

    def __getitem__(self, purpose: str) -> str | None:
        """:raises KeyError: if there is no such purpose"""
        if purpose not in PURPOSES:
            raise KeyError(purpose)
        statement = self.decisive(purpose)
        if statement is None:
            return None
        return statement.says[purpose]

    @property
    def verdicts(self) -> dict[str, str | None]:
        """``"y"``, ``"n"`` or None for each purpose."""
        return {purpose: self[purpose] for purpose in PURPOSES}

    def decisive(self, purpose: str) -> Statement | None:
        """Return the first statement that says no to *purpose*; if none does, the first
        that says yes, or None."""
        first_yes = None
        for statement in self.statements:
            answer = statement.says.get(purpose)
            if answer == NO:
                return statement
            if answer == YES and first_yes is None:
                first_yes = statement
        return first_yes

    def as_dict(self) -> dict[str, Any]:
        """Return the verdicts and all fields, ready for JSON."""
        return {
            **self.verdicts,
            "statements": [asdict(statement) for statement in self.statements],
            "licenses": list(self.licenses),
            "tdm_policy": self.tdm_policy,
            "robots_sha256": self.robots_sha256,
            "robots_fetched_at": _iso(self.robots_fetched_at),
            "tdmrep_sha256": self.tdmrep_sha256,
            "time": _iso(self.time),
        }


def _iso(time: datetime | None) -> str | None:
    """Return *time*, which is in UTC, as ISO 8601 with a Z:
    ``2026-11-28T12:00:00Z``."""
    if time is None:
        return None
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


# Content-Usage

LABELS = {
    "train-ai": TRAINING,
    "ai-use": INPUT,
    "search": SEARCH,
}
"""The purpose for each category of the vocabulary that ``Content-Usage`` uses."""

MAX_PREFERENCES_LENGTH = 500
"""Longer values of ``Content-Usage`` say nothing. To parse a value of this length takes
half a millisecond."""

EXTRA = "pip install 'scrapy-rep[usage]'"
"""What installs http-sf, the parser of structured fields."""


def read_preferences(value: str) -> dict[str, str | None]:
    """Parse the value of a ``Content-Usage``, a dictionary as in RFC 9651.

    Return ``"y"``, ``"n"``, or None for any other value, by key. Parameters mean
    nothing, and the last of duplicate keys counts.

    :raises ValueError: if *value* isn't a dictionary, and so says nothing
    :raises ModuleNotFoundError: if the extra ``usage`` is not installed
    """
    try:
        from http_sf import Token, parse
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"Content-Usage is read with http-sf: {EXTRA}"
        ) from None
    if len(value) > MAX_PREFERENCES_LENGTH:
        raise ValueError(f"longer than {MAX_PREFERENCES_LENGTH:,} bytes")
    members: Any = parse(value.encode("latin-1"), tltype="dictionary")
    answers: dict[str, str | None] = {}
    for key, (item, _parameters) in members.items():
        # The token y counts, the string "y" doesn't.
        answers[key] = None
        if isinstance(item, Token) and str(item) in (YES, NO):
            answers[key] = str(item)
    return answers


def preferences(value: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose, given the value of a ``Content-Usage``. A
    value that can't be read says nothing."""
    try:
        answers = read_preferences(value)
    except ValueError:
        return {}
    says = {}
    for key, purpose in LABELS.items():
        answer = answers.get(key)
        if answer is not None:
            says[purpose] = answer
    return says


def split_rule(value: str) -> tuple[str, str]:
    """Return the path and the preferences in *value*, of a ``Content-Usage`` line. The
    path is empty if there is none, and so are the preferences."""
    if not value.startswith("/"):
        return "", value  # no path
    path_and_preferences = re.split(r"[ \t]", value, maxsplit=1)
    if len(path_and_preferences) == 1:
        return value, ""  # a path only
    path, written = path_and_preferences
    return path, written.strip(SPACE)


# Content-Signal

SIGNALS = {
    "search": SEARCH,
    "ai-input": INPUT,
    "ai-train": TRAINING,
}
"""The purpose for each name of a ``Content-Signal``."""

VALUES = {
    "yes": YES,
    "no": NO,
}
"""The answer for each value of these signals."""

META_SIGNAL = "content-signal"
"""The name of metas that are read as the header ``Content-Signal``."""

USE = "use"
"""The signal that names the most that may be done with the content. Cloudflare's
managed files have it since July 2026."""

USE_LEVELS = {
    "immediate": (SEARCH, TRAINING),
    "reference": (TRAINING,),
    "full": (),
}
"""The values of ``use``, from least to most, and the purposes that each refuses. To
read a page, answer, and store nothing is ``immediate``: the ``ai-input`` of a page. To
index it, with excerpts and links, is ``reference``. To reproduce it, as a model that
was trained on it may, is ``full``."""

# At most this many signals of one line are read. Only four are defined, so a longer
# list is an attack.
_MAX_SIGNALS = 100


class Signal(NamedTuple):
    """One signal of a ``Content-Signal`` line, in lower case."""

    name: str
    value: str
    has_blanks: bool
    """Whether there are blanks around its ``=``. Then other crawlers may not read the
    signal."""


def read_signals(text: str) -> list[Signal]:
    """Return the signals in *text*, the value of a ``Content-Signal``: known signals
    and others."""
    # Signals are separated by commas. Some people use semicolons, too.
    text_with_commas = text.lower().replace(";", ",")
    # The part after the first _MAX_SIGNALS has the rest of the text.
    parts = text_with_commas.split(",", _MAX_SIGNALS)
    signals_in_text = []
    for part in parts[:_MAX_SIGNALS]:
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        has_blanks = False
        if equals:
            has_blanks = name[-1:].isspace() or value[:1].isspace()
        signals_in_text.append(Signal(name.strip(), value.strip(), has_blanks))
    return signals_in_text


def signals(text: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose, given *text*, the value of a
    ``Content-Signal``. If one purpose is permitted and refused, ``"n"`` takes
    precedence."""
    says: dict[str, str] = {}
    # Purposes for which there is an "n", whatever else is said before or after it.
    refused: set[str] = set()
    for signal in read_signals(text):
        if signal.name == USE:
            # A level refuses purposes, and permits none.
            refused.update(USE_LEVELS.get(signal.value, ()))
            continue
        purpose = SIGNALS.get(signal.name)
        answer = VALUES.get(signal.value)
        if purpose is None or answer is None:
            continue
        says[purpose] = answer
        if answer == NO:
            refused.add(purpose)
    for purpose in refused:
        says[purpose] = NO
    return says


# Headers and metas

MAX_LINES = 100
"""At most this many ``Content-Usage`` lines of one robots.txt count for one crawler, as
many ``Content-Signal`` lines, and as many ``content-signal`` metas of one page."""


def header_statements(name: str, values: Sequence[bytes]) -> list[Statement]:
    """Return what the headers called *name* (``Content-Usage`` or ``Content-Signal``)
    say together: one statement, or none if there are no such headers.

    :param values: those of all headers with this name
    """
    text = b", ".join(values).decode("latin-1")
    if not text:
        return []
    if name == "Content-Usage":
        says = preferences(text)
    else:
        says = signals(text)
    return [Statement(f"header {name}", None, text[:MAX_STATEMENT_TEXT], says)]


def meta_statements(metas: Iterable[tuple[str, str, int]]) -> list[Statement]:
    """Return what the ``content-signal`` metas of a page say. *metas* has the name, the
    content and the line of each."""
    statements = []
    for name, content, line in islice(metas, MAX_LINES):
        text = content[:MAX_STATEMENT_TEXT]
        statement = Statement(f"meta {name}", line, text, signals(content))
        statements.append(statement)
    return statements


# noai and the like

AI_RULES = {
    "noai": (TRAINING, IMAGES),
    "noimageai": (IMAGES,),
    "noml": (TRAINING, IMAGES),
}
"""Page-level rules about AI, and the purposes that each refuses. (``noai`` and ``noml``
speak for the images, too.)"""


def page_statements(rules: PageRules) -> list[Statement]:
    """Return what a page's page-level *rules* say about AI."""
    statements = []
    for rule in rules.rules:
        refused = AI_RULES.get(rule.name)
        if refused is not None:
            says = dict.fromkeys(refused, NO)
            statements.append(Statement(rule.source, rule.line, rule.name, says))
    return statements


# Policy tokens


def token_statement(
    token: str, decision: Decision, purposes: Iterable[str]
) -> Statement | None:
    """Return what robots.txt says about *purposes* to a policy token, such as
    ``CCBot``; None if it says nothing. *decision*: what the file decides about the page
    for a crawler of this name.

    A line that forbids the page says no. A line that allows it says yes only if its
    group names the token, since permission for all crawlers says nothing about use.
    """
    rule = decision.rule
    if rule is None or (decision.allowed and decision.agent == GLOBAL):
        return None
    answer = YES if decision.allowed else NO
    says = dict.fromkeys(purposes, answer)
    text = str(rule)[:MAX_STATEMENT_TEXT].rstrip()
    return Statement(f"robots.txt for {token}", rule.line, text, says)


# Licenses

MAX_LICENSES = 100
"""At most this many licenses of one page, or of one robots.txt, are reported. More can
only be an attack."""

# At most this many bytes of Link headers are searched for licenses.
_MAX_LINK_BYTES = 16 * 1024
_MEDIA_TYPE = "application/rsl+xml"
# A link, such as <https://example.com/license.xml>; rel="license"; type="application/…"
_LINK_WITH_PARAMETERS = re.compile(r"<([^<>]*)>([^<>]*)")
# In these parameters, a rel that is license, or a list of words with license in it.
_LICENSE_RELATION = re.compile(
    r";\s*rel\s*=\s*(?:\"(?:[^\"]*[ \t])?license[\" \t]|license\s*(?:[;,]|\Z))"
)


def link_licenses(values: Sequence[bytes]) -> list[str]:
    """Return the URLs of RSL licenses that a page's ``Link`` headers have, given their
    *values*."""
    text = b",".join(values)[:_MAX_LINK_BYTES].decode("latin-1")
    urls = []
    for url, written_parameters in _LINK_WITH_PARAMETERS.findall(text):
        parameters = written_parameters.lower()
        if _MEDIA_TYPE in parameters and _LICENSE_RELATION.search(parameters):
            urls.append(url.strip())
    return urls[:MAX_LICENSES]


# Lines of robots.txt

# At most this many lines about use of one file are read, whichever agents they are for.
# A slow machine reads them in 50 ms.
_MAX_LINES_READ = 5_000

# A line about use, with the line end before it. The groups are its field and its value.
_LINE_ABOUT_USE = re.compile(
    r"\n[ \t\v\f]*(content-usage|content-signal|license)[ \t\v\f]*:([^\n]*)",
    re.IGNORECASE | re.ASCII,
)
# An allow or disallow line, as protocol/robotstxt.py reads them: with the misspellings
# that Google accepts, and with a blank instead of the colon.
_ALLOW_OR_DISALLOW = re.compile(
    r"\n[ \t\v\f]*(?:allow|dis{1,2}al{1,2}ow|diasllow|disallaw)"
    r"(?:[^:#\n]*:|[^\s:#]*[ \t]+[^\s:#]+[ \t\v\f]*(?:[#\n]|\Z))",
    re.IGNORECASE | re.ASCII,
)


class UsageRule(NamedTuple):
    """A ``Content-Usage`` line of robots.txt."""

    path: Rules | None
    """Rules (protocol/matching.py) with the line's path only; None if the line has no
    path, and is about all pages."""
    statement: Statement


@dataclass(frozen=True, slots=True)
class RobotsUsage:
    """What a robots.txt says about use, to one crawler."""

    rules: tuple[UsageRule, ...] = ()
    """``Content-Usage`` lines of the crawler's groups."""
    signals: tuple[Statement, ...] = ()
    """``Content-Signal`` lines: of the crawler's groups, and those before all
    groups."""
    licenses: tuple[str, ...] = ()
    """URLs of ``License`` lines, wherever they are."""

    def about(self, path: str, *, allowed: bool) -> list[Statement]:
        """Return the statements about *path*: those of the longest matching path, and
        all signals.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        :param allowed: whether it may be fetched; if not, ``Content-Usage`` doesn't
            apply to it
        """
        if not allowed:
            return list(self.signals)
        # The statements of the longest matching path so far, and its length.
        statements: list[Statement] = []
        longest = 0
        for rule in self.rules:
            length = 0  # of a rule without a path, which is about all pages
            if rule.path is not None:
                key = rule.path.find(path)
                if key == 0:
                    continue  # the rule is about other paths
                # From LENGTH_BIT on, the key has the length of the rule's path, see
                # Rules in protocol/matching.py.
                length = key >> LENGTH_BIT
            if length > longest:
                longest = length
                statements.clear()  # these are of shorter paths
            if length == longest:
                statements.append(rule.statement)
        return [*statements, *self.signals]


class UsageLine(NamedTuple):
    """A line of robots.txt that is about use, for any agent."""

    number: int
    """Counted from 1."""
    field: str
    """``content-usage``, ``content-signal`` or ``license``."""
    value: str
    """Without a comment."""
    written: str
    """The whole line, with the line end before it."""
    is_named: bool | None
    """Whether the line is in a group that names the token that was asked for. None
    before all groups."""


def lines_about_use(text: str, token: str | None = None) -> Iterator[UsageLine]:
    """Yield the lines about use in *text*, a normalised robots.txt, and whether each is
    in a group that names *token* (in lower case)."""
    # The pattern begins with a line end, which the first line has only here.
    if _LINE_ABOUT_USE.search("\n" + text) is None:
        return  # as in most files
    # The number of the latest line that was counted.
    number = 0
    # Whether the group names the token. None before all groups.
    is_named: bool | None = None
    # Whether the group has a rule, so that the next user-agent line begins another
    # group.
    has_rule = False
    # Groups (protocol/robotstxt.py) splits the text at its user-agent lines. A stretch
    # has the lines after such a line, each with the line end before it. The name is the
    # agent in the user-agent line; None for the stretch before the first such line.
    for index, (name, stretch) in enumerate(Groups(text)):
        if index > 0:
            number += 1  # the user-agent line
        if name is not None:
            # Consecutive user-agent lines name the agents of one group.
            was_named = bool(is_named) and not has_rule
            is_named = name == token or was_named
            has_rule = False
        # Yield the lines about use in the stretch. Its lines are counted up to this
        # index.
        counted_up_to = 0
        for match in _LINE_ABOUT_USE.finditer(stretch):
            # The match begins with the line end before its line.
            line_start = match.start() + 1
            number += stretch.count("\n", counted_up_to, line_start)
            counted_up_to = line_start
            field_name = match[1].lower()
            if field_name != "license":
                has_rule = True
            value = match[2].partition("#")[0].strip(SPACE)
            yield UsageLine(number, field_name, value, match[0], is_named)
        if _ALLOW_OR_DISALLOW.search(stretch) is not None:
            has_rule = True
        number += stretch.count("\n", counted_up_to)  # the other lines of the stretch


def read_robots(body: bytes, token: str | None) -> RobotsUsage:
    """Return what *body*, a robots.txt, says about use to a crawler. The body may be
    any bytes at all.

    :param token: the token (in any case), or ``*``, of the group that applies to the
        crawler; None if none does
    :raises ModuleNotFoundError: if the extra ``usage`` is needed and not installed
    """
    rules: list[UsageRule] = []
    signal_statements: list[Statement] = []
    licenses: list[str] = []
    token_in_lower_case = token.lower() if token else None
    lines = lines_about_use(normalise(body), token_in_lower_case)
    for line in islice(lines, _MAX_LINES_READ):
        if line.field == "license":
            if line.value and len(licenses) < MAX_LICENSES:
                licenses.append(readable(line.value))
        elif line.field == "content-signal":
            # Lines before all groups (None) count for every crawler.
            is_for_others = line.is_named is False
            if not is_for_others and len(signal_statements) < MAX_LINES:
                says = signals(line.value)
                signal_statements.append(_statement(line, says))
        elif line.is_named and len(rules) < MAX_LINES:
            rules.append(_usage_rule(line))
    return RobotsUsage(tuple(rules), tuple(signal_statements), tuple(licenses))


def _statement(line: UsageLine, says: dict[str, str]) -> Statement:
    """Return the statement for a line of robots.txt, which *says* something about
    use."""
    text = readable(line.written.strip("\n" + SPACE))[:MAX_STATEMENT_TEXT]
    return Statement("robots.txt", line.number, text, says)


def _usage_rule(line: UsageLine) -> UsageRule:
    """Return what a ``Content-Usage`` line says, and about which path."""
    path, written_preferences = split_rule(line.value)
    statement = _statement(line, preferences(written_preferences))
    if not path:
        return UsageRule(None, statement)
    # Rules finds paths by disallow rules. What such a rule would forbid plays no part.
    number = disallow_number(line.number)
    return UsageRule(Rules([path], [number]), statement)


# TDM reservations

TDMREP_PATH = "/.well-known/tdmrep.json"
"""The path of an origin's file."""

RESERVATION = "tdm-reservation"
"""The name of headers, of metas, and of members in a tdmrep.json: the value 1 reserves
the rights, 0 doesn't."""
POLICY = "tdm-policy"
"""The name of headers, metas and members whose value is the URL of a policy."""

# At most this many locations of one file count. More can only be an attack.
_MAX_LOCATIONS = 1_000
# At most this many headers or metas of a page count. More can only be an attack.
_MAX_TDM_VALUES = 100


class Reservation(NamedTuple):
    """What a page, its headers or a tdmrep.json say about text and data mining."""

    statement: Statement | None = None
    """None without a valid ``tdm-reservation``."""
    policy: str | None = None
    """The URL of the policy; None without a ``tdm-policy``."""

    @property
    def is_reserved(self) -> bool:
        # Only a statement that reserves the rights says anything about mining.
        return self.statement is not None and MINING in self.statement.says

    def __or__(self, other: Reservation) -> Reservation:
        """Return this reservation. If it has no statement, or no policy, that of
        *other*, which is less specific, is in its place."""
        return Reservation(
            self.statement or other.statement, self.policy or other.policy
        )


def _reservation(
    source: str, line: int | None, text: str, value: object, policy: object
) -> Reservation:
    """Return what *value*, of a ``tdm-reservation``, and *policy*, of a ``tdm-policy``,
    say together. *source*, *line* and *text* are those of the statement, see
    :class:`Statement`."""
    statement = None
    text = text[:MAX_STATEMENT_TEXT]
    number = str(value).strip()
    if number == "1":
        statement = Statement(source, line, text, {MINING: NO})
    elif number == "0":
        # Nothing is reserved, which permits nothing.
        statement = Statement(source, line, text, {})
    if not isinstance(policy, str):
        return Reservation(statement)
    policy_url = policy.strip()[:MAX_URL]
    return Reservation(statement, policy_url or None)


def reservation_in(
    place: str, values: Iterable[tuple[str, str, int | None]]
) -> Reservation:
    """Return the reservation in the first of *values* that reserves the rights; if none
    does, in the first that is valid. Its policy is the last one among *values*.

    :param place: ``header`` or ``meta``
    :param values: name, value and line of each header or meta
    """
    values = list(islice(values, _MAX_TDM_VALUES))
    policy = None
    for name, value, _ in values:
        if name == POLICY:
            policy = value  # the last one counts
    first_valid = Reservation()  # empty, until there is a valid one
    for name, value, line in values:
        if name != RESERVATION:
            continue
        reservation = _reservation(f"{place} {name}", line, value, value, policy)
        if reservation.is_reserved:
            return reservation
        first_valid |= reservation  # adds only what is missing
    # If there is no reservation, the policy is returned alone, since a less specific
    # source may have the reservation.
    return first_valid | _reservation(place, None, "", None, policy)


class TdmFile:
    """The rules of a ``tdmrep.json``, which may be any bytes at all: never raises."""

    def __init__(self, body: bytes) -> None:
        self._rules: list[tuple[Rules, Reservation]] = []
        with suppress(ValueError, RecursionError):
            entries = json.loads(body.decode("utf-8-sig"))
            if not isinstance(entries, list):
                return
            for entry in entries[:_MAX_LOCATIONS]:
                is_object = isinstance(entry, dict)
                if is_object and isinstance(entry.get("location"), str):
                    self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        """Add the rule of an *entry* whose location is a text: a pattern, as in
        robots.txt."""
        # Rules take latin-1, one character for each byte.
        location = entry["location"].encode("utf-8", "replace").decode("latin-1")
        members = {}
        for name in ("location", RESERVATION, POLICY):
            if name in entry:
                members[name] = entry[name]
        reservation = _reservation(
            "tdmrep.json",
            None,
            json.dumps(members),
            entry.get(RESERVATION),
            entry.get(POLICY),
        )
        # Rules finds locations by disallow rules. An entry is in no line of a
        # robots.txt, so 0 stands for the line.
        number = disallow_number(0)
        self._rules.append((Rules([location], [number]), reservation))

    def about(self, path: str) -> Reservation:
        """Return what is said about the first location that matches *path*.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        """
        for rules, reservation in self._rules:
            key = rules.find(path)
            # A smaller key means that the location doesn't match, or is empty.
            if key >= SHORTEST:
                return reservation
        return Reservation()
