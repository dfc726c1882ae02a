"""What a project chooses beyond the protocol (REP.md section 13): a robots.txt of its
own for some hosts, and what some answers mean to it. By default it chooses nothing;
then no :class:`Choices` is made.

An entry (storages/base.py) records the origin's answer, so that projects can share a
storage. What the answer means to this project is worked out each time the entry is
used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.answer import READ_BYTES, Answer
from scrapy_rep.origins.status import Failing, Stale, Unreachable, Unrestricted
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import FORBIDDEN, Outcome, is_challenge
from scrapy_rep.protocol.freshness import NO_CRAWL_SECONDS, SHARES
from scrapy_rep.settings import GOOGLE_2026, Override, RepSettings, setting_name
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import iso

_NAMES = ("overrides", "forbidden", "challenge", "unreachable_rules")
"""Attributes of :class:`RepSettings`: the settings of REP.md section 13."""

_OFF = (None, "allow", "google")
"""The values of the settings in :data:`_NAMES` that choose nothing: the protocol's
rules apply."""


class Choices:
    """What a project chooses. :func:`chosen` tells whether one of these is needed."""

    def __init__(self, settings: RepSettings) -> None:
        """Raises ``SettingsError`` if a file of ``REP_OVERRIDES`` can't be read."""
        self._settings = settings
        self.follows_2026 = settings.unreachable_rules == GOOGLE_2026
        """Whether Google's rules of April 2026 apply to unreachable origins: what is
        allowed changes in steps, after 12 hours and after 30 days."""
        self.overrides: dict[str, Answer] = {}
        """The project's own answers by host, or by ``*.`` and a domain."""
        overrides = settings.overrides or {}
        for host, override in overrides.items():
            self.overrides[host] = _own_answer(host, override)

    def own_answer(self, origin: Origin, now: float) -> Answer | None:
        """Return the project's answer in place of *origin*'s, if it has one *now*: for
        the host's name, else for the closest domain. None if it has none, or only one
        whose time has ended."""
        names = [origin.host]
        domain = origin.host
        while "." in domain:
            domain = domain.partition(".")[2]
            names.append(f"*.{domain}")
        for name in names:
            answer = self.overrides.get(name)
            if answer is not None and now < answer.ends_at:
                return replace(answer, url=origin.robots_url)
        return None

    def applied_to(self, answer: Answer) -> Answer:
        """Return *answer* as it counts for this project: if the project doesn't accept
        it, the origin counts as unreachable."""
        refusal = self.refusal(answer)
        if not refusal:
            return answer
        return replace(answer, outcome=Outcome.UNREACHABLE, setting=refusal)

    def refusal(self, answer: Answer | Entry) -> str:
        """Return why this project doesn't accept *answer*, which has just come, or is
        an entry that another project may have stored. Empty if the project accepts it,
        or if the origin counts as unreachable anyway."""
        if answer.outcome is Outcome.UNREACHABLE:
            return ""
        holds_forbidden = self._settings.forbidden == "hold"
        if holds_forbidden and _is_forbidden(answer):
            return "REP_FORBIDDEN is 'hold'"
        if self._settings.challenge != "hold":
            return ""
        if answer.wall:
            return f"{answer.wall}, and REP_CHALLENGE is 'hold'"
        has_rules = answer.outcome is Outcome.RULES
        # is_challenge() comes last, since an entry's `body` is unpacked each time.
        if has_rules and is_challenge(answer.status, answer.body):
            return "a page of HTML without a rule, and REP_CHALLENGE is 'hold'"
        return ""

    def setting_for(self, entry: Entry, origin: Origin, now: float) -> str:
        """Return the setting that decides about *origin*, in words; empty if the
        protocol does."""
        own_answer = self.own_answer(origin, now)
        if own_answer is not None:
            return own_answer.setting
        if entry.unreachable_since is not None and self.follows_2026:
            return f"REP_UNREACHABLE_RULES is {GOOGLE_2026!r}"
        if self.forbids_all(entry):
            return f"HTTP {entry.status}, and REP_FORBIDDEN is 'disallow'"
        return ""

    def forbids_all(self, entry: Entry) -> bool:
        """Return whether *entry* is a 401 or 403 for robots.txt that forbids
        everything."""
        has_answered = entry.unreachable_since is None
        refuses = has_answered and _is_forbidden(entry)
        return refuses and self._settings.forbidden == "disallow"


def _is_forbidden(answer: Answer | Entry) -> bool:
    """Return whether *answer* is a 401 or 403, which by the protocol means that there
    are no rules."""
    return answer.outcome is Outcome.MISSING and answer.status in FORBIDDEN


def is_own(entry: Entry) -> bool:
    """Return whether *entry* holds an answer of the project's own (``REP_OVERRIDES``),
    not a server's."""
    return entry.fetched_at is not None and entry.status is None


def in_outage(entry: Entry, now: float, settings: RepSettings) -> type[Failing]:
    """Return what the *entry* of an unreachable origin is good for (REP.md sections 4
    and 13)."""
    seconds = entry.unreachable_for
    limit = settings.unreachable_limit
    if settings.unreachable_rules != GOOGLE_2026:
        if entry.has_copy:  # however old the copy is
            return Stale
        return Unrestricted if seconds >= limit else Unreachable
    if seconds < NO_CRAWL_SECONDS:
        return Unreachable
    if seconds < limit:
        return Stale if entry.has_copy else Unrestricted
    # A page's answer counts as long as a failed attempt may (see SHARES): longer than
    # the pause of a crawl that runs weekly.
    seconds_since_page = now - entry.page_answered_at
    pages_answer = 0 <= seconds_since_page <= limit / SHARES
    return Unrestricted if pages_answer else Unreachable


def chosen(settings: RepSettings) -> list[str]:
    """Return the settings of REP.md section 13 that aren't off, with their values, in
    words."""
    texts: list[str] = []
    for name in _NAMES:
        value = getattr(settings, name)
        if value in _OFF:
            continue
        setting = setting_name(name)
        if isinstance(value, dict):
            hosts = ", ".join(value)
            texts.append(f"{setting} for {hosts}")
        else:
            texts.append(f"{setting} is {value!r}")
    return texts


def _own_answer(host: str, override: Override) -> Answer:
    """Return the answer that counts for *host* by ``REP_OVERRIDES``. Its URL is empty:
    the origin's is filled in when the answer is used."""
    until = ""
    ends_at = math.inf
    if override.until is not None:
        ends_at = override.until.timestamp()
        until = f" until {iso(ends_at)}"
    path = override.file
    if path is None:
        setting = f"REP_OVERRIDES says to ignore it{until}"
        outcome = Outcome.MISSING
        return Answer(outcome, url="", hops=0, setting=setting, ends_at=ends_at)
    try:
        with Path(path).open("rb") as file:
            body = file.read(READ_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"REP_OVERRIDES: can't read {path!r}, for {host}: {why}."
        ) from None
    setting = f"REP_OVERRIDES names {path} instead{until}"
    return Answer(
        Outcome.RULES, url="", hops=0, body=body, setting=setting, ends_at=ends_at
    )
