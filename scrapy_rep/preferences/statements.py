"""All statements about the use of a page, where they are found, and what they say together (REP.md section 11).

- ``Content-Usage``: draft-ietf-aipref-vocab-08, September 2026 (07, of August, has no ``ai-use``); in
  robots.txt and as a header: draft-ietf-aipref-attach-05, August 2026; its syntax, a dictionary of
  structured fields: RFC 9651. In robots.txt it is a rule: a ``user-agent`` line after it begins a new
  group. So is ``Content-Signal`` here. Neither changes which pages may be fetched.
- ``Content-Signal``: Cloudflare's Content Signals Policy, September 2025, contentsignals.org;
  draft-romm-aipref-contentsignals-00, October 2025, expired. Cloudflare has sent it as a header since
  February 2026 (Markdown for Agents); sites that move it out of robots.txt do so, too.
- ``noai`` and ``noimageai`` in ``X-Robots-Tag`` and metas: DeviantArt, November 2022; ``noml``: noml.info,
  October 2023. There is no specification of these.
- Policy tokens, names in ordinary groups that no crawler sends: ``Google-Extended`` (Google, September
  2023), ``Applebot-Extended`` (Apple, June 2024), ``CCBot``, … Only the companies that
  honour them describe what they mean.
- Licenses: RSL 1.0, Really Simple Licensing, December 2025. Their URLs are reported, never fetched.
- The TDM Reservation Protocol: W3C Community Group Final Report, 10 May 2024. Metas take precedence over
  headers, headers over ``/.well-known/tdmrep.json``. A reservation is 1 or 0. 0 permits nothing; it only
  says that nothing is reserved in this protocol.

Statements are combined as draft-ietf-aipref-vocab-08, "Combining Preferences", asks: ``n`` takes
precedence over ``y``; without either, nothing is known.
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

from scrapy_rep.protocol.matching import ALLOW, LENGTH_BIT, SHORTEST, Decision, Rules
from scrapy_rep.protocol.origin import MAX_URL
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.robotstxt import Groups
from scrapy_rep.protocol.syntax import GLOBAL, SPACE, normalise, readable

TRAINING, IMAGES, INPUT, SEARCH, MINING = PURPOSES = (
    "train-ai",
    "train-ai-images",
    "ai-input",
    "search",
    "tdm",
)
"""Training of generative AI on the page, and on its images; input to an AI that answers; search;
text and data mining."""

YES, NO = "y", "n"

MAX_STATEMENT_TEXT = 1_000
"""Characters of a statement that are kept for the record."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of robots.txt, one header or one meta that is about use."""

    source: str
    """``robots.txt``, ``robots.txt for CCBot``, ``header Content-Usage``, ``meta robots``, …"""
    line: int | None
    """Of robots.txt or of the HTML, counted from 1."""
    text: str
    """As written: a line of robots.txt, the value of a header or meta."""
    says: dict[str, str] = field(default_factory=dict)
    """``"y"`` or ``"n"`` by purpose. Empty if it says nothing that is understood."""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}, line {self.line}"
        return f"{where}: {self.text}"


@dataclass(frozen=True, slots=True)
class Usage:
    """How a page may be used: ``usage["train-ai"]`` is ``"y"``, ``"n"`` or None."""

    statements: tuple[Statement, ...] = ()
    """All that apply to the page, those of robots.txt first."""
    licenses: tuple[str, ...] = ()
    """URLs of RSL licenses. Never fetched."""
    tdm_policy: str | None = None
    """URL of the policy under which text and data mining is licensed. Never fetched."""
    robots_sha256: str | None = None
    """Of the robots.txt that was read. None if there is none, or if it isn't known."""
    robots_fetched_at: datetime | None = None
    tdmrep_sha256: str | None = None
    """Of ``/.well-known/tdmrep.json``."""
    time: datetime | None = None
    """When all this was looked up."""

    def __getitem__(self, purpose: str) -> str | None:
        """:raises KeyError: if there is no such purpose"""
        if purpose not in PURPOSES:
            raise KeyError(purpose)
        statement = self.decisive(purpose)
        return None if statement is None else statement.says[purpose]

    @property
    def verdicts(self) -> dict[str, str | None]:
        """``"y"``, ``"n"`` or None for each purpose."""
        return {purpose: self[purpose] for purpose in PURPOSES}

    def decisive(self, purpose: str) -> Statement | None:
        """Return the first statement that says no to *purpose*; if none does, the first that says yes."""
        said = {
            one.says[purpose]: one
            for one in reversed(self.statements)
            if purpose in one.says
        }
        return said.get(NO) or said.get(YES)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {
            **self.verdicts,
            "statements": [asdict(one) for one in self.statements],
            "licenses": list(self.licenses),
            "tdm_policy": self.tdm_policy,
            "robots_sha256": self.robots_sha256,
            "robots_fetched_at": _iso(self.robots_fetched_at),
            "tdmrep_sha256": self.tdmrep_sha256,
            "time": _iso(self.time),
        }


def _iso(time: datetime | None) -> str | None:
    return (
        None
        if time is None
        else time.isoformat(timespec="seconds").replace("+00:00", "Z")
    )


LABELS = {"train-ai": TRAINING, "ai-use": INPUT, "search": SEARCH}
"""The categories of the vocabulary, and our purposes."""

MAX_PREFERENCES_LENGTH = 500
"""Longer preferences say nothing: these take half a millisecond."""

EXTRA = "pip install 'scrapy-rep[usage]'"
"""What installs the parser of structured fields."""


def read_preferences(value: str) -> dict[str, str | None]:
    """Parse a dictionary. Return ``"y"`` or ``"n"`` by key, None for all other values; parameters
    mean nothing, and the last of duplicate keys counts. ``ValueError`` if it isn't a dictionary, and
    so says nothing; ``ModuleNotFoundError`` if the extra ``usage`` is not installed."""
    try:
        from http_sf import Token, parse
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"Content-Usage is read with http-sf: {EXTRA}"
        ) from None
    if len(value) > MAX_PREFERENCES_LENGTH:
        raise ValueError(f"longer than {MAX_PREFERENCES_LENGTH:,} bytes")
    members: Any = parse(value.encode("latin-1"), tltype="dictionary")
    return {
        key: str(bare) if isinstance(bare, Token) and str(bare) in (YES, NO) else None
        for key, (bare, _) in members.items()
    }


def preferences(value: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose; nothing for what can't be read."""
    try:
        said = read_preferences(value)
    except ValueError:
        return {}
    return {
        purpose: answer for key, purpose in LABELS.items() if (answer := said.get(key))
    }


def split_rule(value: str) -> tuple[str, str]:
    """Return path and preferences of a ``Content-Usage`` line; an empty path if it has none."""
    if value[:1] != "/":
        return "", value
    path, *given = re.split(r"[ \t]", value, maxsplit=1)
    return path, "".join(given).strip(SPACE)


# Content-Signal; noai and the like; policy tokens; licenses

SIGNALS = {"search": SEARCH, "ai-input": INPUT, "ai-train": TRAINING}
"""The signals, and our purposes."""
VALUES = {"yes": YES, "no": NO}
META_SIGNAL = "content-signal"
"""The name of metas that are read as the header."""
USE = "use"
"""The most that may be done with the content. In Cloudflare's managed files since July 2026."""
LEVELS = {"immediate": (SEARCH, TRAINING), "reference": (TRAINING,), "full": ()}
"""The values of ``use``, from least to most, and the purposes beyond each. To read a page, answer, and
store nothing is ``immediate``: the ``ai-input`` of a page. To index it, with excerpts and links, is
``reference``. To reproduce it, as a model that was trained on it may, is ``full``."""

_MAX_SIGNALS = 100  # of one line; there are three


def read_signals(value: str) -> list[tuple[str, str, bool]]:
    """Return name and value of each signal of a line, in lower case, and whether there are blanks
    around its ``=``: other crawlers may not read it then. People also separate them by semicolons."""
    found = []
    for part in value.lower().replace(";", ",").split(",", _MAX_SIGNALS)[:_MAX_SIGNALS]:
        name, equals, said = part.partition("=")
        loose = bool(equals) and (name[-1:].isspace() or said[:1].isspace())
        if part.strip():
            found.append((name.strip(), said.strip(), loose))
    return found


def signals(value: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose. If there are both for one, ``"n"`` takes precedence."""
    says: dict[str, str] = {}
    refused: set[str] = set()
    for name, said, _ in read_signals(value):
        if name in SIGNALS and said in VALUES:
            purpose, answer = SIGNALS[name], VALUES[said]
            says[purpose] = answer
            if answer == NO:
                refused.add(purpose)
        elif name == USE:
            refused.update(LEVELS.get(said, ()))
    return says | dict.fromkeys(refused, NO)


def header_statements(name: str, values: Sequence[bytes]) -> list[Statement]:
    """Return what all ``Content-Usage`` or all ``Content-Signal`` header lines say together."""
    text = b", ".join(values).decode("latin-1")
    if not text:
        return []
    says = preferences(text) if name == "Content-Usage" else signals(text)
    return [Statement(f"header {name}", None, text[:MAX_STATEMENT_TEXT], says)]


def meta_statements(metas: Iterable[tuple[str, str, int]]) -> list[Statement]:
    """Return what the ``content-signal`` metas of a page say: name, content and line of each."""
    return [
        Statement(f"meta {name}", line, content[:MAX_STATEMENT_TEXT], signals(content))
        for name, content, line in islice(metas, MAX_LINES)
    ]


# noai and noml speak for the images too.
AI_RULES = {
    "noai": (TRAINING, IMAGES),
    "noimageai": (IMAGES,),
    "noml": (TRAINING, IMAGES),
}


def page_statements(rules: PageRules) -> list[Statement]:
    return [
        Statement(
            rule.source, rule.line, rule.name, dict.fromkeys(AI_RULES[rule.name], NO)
        )
        for rule in rules.rules
        if rule.name in AI_RULES
    ]


def token_statement(
    token: str, decision: Decision, purposes: Iterable[str]
) -> Statement | None:
    """Return what robots.txt says to *token*; None for nothing. A line that forbids the page says
    no. A line that allows it says yes only if its group names the token: permission for all
    crawlers says nothing about use."""
    rule = decision.rule
    if rule is None or (decision.allowed and decision.agent == GLOBAL):
        return None
    says = dict.fromkeys(purposes, YES if decision.allowed else NO)
    return Statement(
        f"robots.txt for {token}",
        rule.line,
        str(rule)[:MAX_STATEMENT_TEXT].rstrip(),
        says,
    )


MAX_LICENSES = 100
"""Of one page."""

_MAX_LINKS = 16 * 1024  # bytes of Link headers that are looked at
_MEDIA_TYPE = "application/rsl+xml"
_LINK = re.compile(r"<([^<>]*)>([^<>]*)")
_LICENSE = re.compile(
    r";\s*rel\s*=\s*(?:\"(?:[^\"]*[ \t])?license[\" \t]|license\s*(?:[;,]|\Z))"
)


def link_licenses(values: Sequence[bytes]) -> list[str]:
    text = b",".join(values)[:_MAX_LINKS].decode("latin-1")
    return [
        url.strip()
        for url, parameters in _LINK.findall(text)
        if _MEDIA_TYPE in parameters.lower() and _LICENSE.search(parameters.lower())
    ][:MAX_LICENSES]


MAX_LINES = 100
"""Lines of each kind that count in one crawler's groups, for all pages together."""

# Lines about use that are read in a file, for any agent: a slow machine has to read them in 50 ms.
_MAX_LINES_READ = 5_000

_FIELD = re.compile(
    r"\n[ \t\v\f]*(content-usage|content-signal|license)[ \t\v\f]*:([^\n]*)",
    re.IGNORECASE | re.ASCII,
)
_RULE = re.compile(
    r"\n[ \t\v\f]*(?:allow|dis{1,2}al{1,2}ow|diasllow|disallaw)"
    r"(?:[^:#\n]*:|[^\s:#]*[ \t]+[^\s:#]+[ \t\v\f]*(?:[#\n]|\Z))",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class RobotsUsage:
    """What a robots.txt says about use, to one crawler."""

    rules: tuple[tuple[Rules | None, Statement], ...] = ()
    """``Content-Usage`` lines; None where no path is given."""
    signals: tuple[Statement, ...] = ()
    """``Content-Signal`` lines: of the crawler's groups, and those before all groups."""
    licenses: tuple[str, ...] = ()

    def about(self, path: str, *, allowed: bool) -> list[Statement]:
        """Return the statements about *path*: those of the longest matching path, and all signals.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        :param allowed: whether it may be fetched; if not, ``Content-Usage`` doesn't apply to it
        """
        lines = self.rules if allowed else ()
        keys = [
            (1 if rules is None else rules.find(path), statement)
            for rules, statement in lines
        ]
        found = [(key >> LENGTH_BIT, statement) for key, statement in keys if key]
        longest = max((length for length, _ in found), default=0)
        return [*(one for length, one in found if length == longest), *self.signals]


def lines_about_use(
    text: str, token: str | None = None
) -> Iterator[tuple[int, str, str, str, bool | None]]:
    """Yield number, field (in lower case), value and text of each line about use in a normalised
    *text*; and whether its group names *token* (in lower case), None before all groups."""
    if _FIELD.search("\n" + text) is None:
        return  # as in most files
    number, named, ended = 0, None, False
    for at, (name, stretch) in enumerate(Groups(text)):
        number += at > 0  # the user-agent line
        if name is not None:
            named, ended = name == token or bool(named and not ended), False
        counted = 0
        for match in _FIELD.finditer(stretch):
            number += stretch.count("\n", counted, match.start() + 1)
            counted, kind = match.start() + 1, match[1].lower()
            ended = ended or kind != "license"
            yield number, kind, match[2].partition("#")[0].strip(SPACE), match[0], named
        ended = ended or _RULE.search(stretch) is not None
        number += stretch.count("\n", counted)


def read_robots(body: bytes, token: str | None) -> RobotsUsage:
    """Read what *body* says to a crawler: any bytes at all.

    :param token: of the group that applies (in any case), ``*``, or None for none
    :raises ModuleNotFoundError: if the extra ``usage`` is needed and not installed
    """
    rules: list[tuple[Rules | None, Statement]] = []
    signs: list[Statement] = []
    licenses: list[str] = []
    lines = lines_about_use(normalise(body), token and token.lower())
    for line, kind, value, written, named in islice(lines, _MAX_LINES_READ):
        text = readable(written.strip("\n" + SPACE))[:MAX_STATEMENT_TEXT]
        if kind == "license" and value and len(licenses) < MAX_LICENSES:
            licenses.append(readable(value))
        elif kind == "content-signal" and named is not False and len(signs) < MAX_LINES:
            signs.append(Statement("robots.txt", line, text, signals(value)))
        elif kind == "content-usage" and named and len(rules) < MAX_LINES:
            path, given = split_rule(value)
            statement = Statement("robots.txt", line, text, preferences(given))
            rules.append(
                (Rules([path], [ALLOW - 1 - line]) if path else None, statement)
            )
    return RobotsUsage(tuple(rules), tuple(signs), tuple(licenses))


# TDM reservations

TDMREP_PATH = "/.well-known/tdmrep.json"
"""Of the URL of an origin's file."""

RESERVATION, POLICY = "tdm-reservation", "tdm-policy"

_MAX_LOCATIONS, _MAX_VALUES = 1_000, 100  # more can only be an attack


class Reservation(NamedTuple):
    """What a page, its headers or a file say about text and data mining."""

    statement: Statement | None = None
    """None without a valid ``tdm-reservation``."""
    policy: str | None = None
    """None without a ``tdm-policy``."""

    @property
    def is_reserved(self) -> bool:
        return self.statement is not None and MINING in self.statement.says

    def __or__(self, other: Reservation) -> Reservation:
        """Return this one, completed by a less specific one: what a source leaves out resets nothing."""
        return Reservation(
            self.statement or other.statement, self.policy or other.policy
        )


def _reservation(
    source: str, line: int | None, text: str, value: object, policy: object
) -> Reservation:
    value, statement = str(value).strip(), None
    if value in ("0", "1"):
        says = {MINING: NO} if value == "1" else {}
        statement = Statement(source, line, text[:MAX_STATEMENT_TEXT], says)
    url = policy.strip()[:MAX_URL] if isinstance(policy, str) else ""
    return Reservation(statement, url or None)


def reservation_in(
    place: str, said: Iterable[tuple[str, str, int | None]]
) -> Reservation:
    """Return the first value that reserves something, else the first that is valid. *said*: name,
    value and line of each ``header`` or ``meta``, which is the *place*."""
    said = list(islice(said, _MAX_VALUES))
    policies = [value for name, value, _ in said if name == POLICY]
    policy = policies[-1] if policies else None
    valid = Reservation()
    for name, value, line in said:
        if name == RESERVATION:
            reservation = _reservation(f"{place} {name}", line, value, value, policy)
            if reservation.is_reserved:
                return reservation
            valid |= reservation
    return valid | _reservation(place, None, "", None, policy)


class TdmFile:
    """The rules of a ``tdmrep.json``: any bytes at all; never raises."""

    def __init__(self, body: bytes) -> None:
        self._rules: list[tuple[Rules, Reservation]] = []
        with suppress(ValueError, RecursionError):
            entries = json.loads(body.decode("utf-8-sig"))
            for entry in entries[:_MAX_LOCATIONS] if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(entry.get("location"), str):
                    self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        location = entry["location"].encode("utf-8", "replace").decode("latin-1")
        said = {
            name: entry[name]
            for name in ("location", RESERVATION, POLICY)
            if name in entry
        }
        value, policy = said.get(RESERVATION), said.get(POLICY)
        found = _reservation("tdmrep.json", None, json.dumps(said), value, policy)
        self._rules.append((Rules([location], [ALLOW - 1]), found))

    def about(self, path: str) -> Reservation:
        """Return what the first location that matches says.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        """
        for rules, reservation in self._rules:
            if rules.find(path) >= SHORTEST:
                return reservation
        return Reservation()
