"""What a project chooses beyond the protocol (REP.md section 13): a robots.txt of its own for some
hosts, and what some answers mean to it. All is off by default; then nothing here is made, or asked.

An entry records the origin's answer, so that projects can share a storage. What it means to this
project is worked out each time the entry is used.
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
from scrapy_rep.protocol.freshness import BLACKOUT, SHARES
from scrapy_rep.settings import LADDER, Override, RepSettings, setting_name
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import iso

_NAMES = ("overrides", "forbidden", "challenge", "unreachable_rules")


class Choices:
    def __init__(self, settings: RepSettings) -> None:
        """Raises ``SettingsError`` if a file of ``REP_OVERRIDES`` can't be read."""
        self._settings = settings
        self.ladder = settings.unreachable_rules == LADDER
        """Whether Google's rules of April 2026 apply to unreachable origins."""
        chosen = settings.overrides or {}
        self.overrides = {
            host: _own_answer(host, override) for host, override in chosen.items()
        }
        """By host, or ``*.`` and a domain."""

    def own_answer(self, origin: Origin, now: float) -> Answer | None:
        """Return the project's answer in place of *origin*'s, if it has one *now*: by its host's name,
        else by the closest domain. One that has ended is as if it weren't there."""
        names, domain = [origin.host], origin.host
        while "." in domain:
            domain = domain.partition(".")[2]
            names.append(f"*.{domain}")
        for name in names:
            answer = self.overrides.get(name)
            if answer is not None and now < answer.ends_at:
                return replace(answer, url=origin.robots_url)
        return None

    def refusal(self, one: Answer | Entry) -> str:
        """Return why this project doesn't accept such an answer; empty if it does, or if the answer
        counts as unreachable anyway. Another project may have stored the entry."""
        if one.outcome is Outcome.UNREACHABLE:
            return ""
        missing = one.outcome is Outcome.MISSING and one.status in FORBIDDEN
        if missing and self._settings.forbidden == "hold":
            return "REP_FORBIDDEN is 'hold'"
        if self._settings.challenge != "hold":
            return ""
        if one.wall:
            return f"{one.wall}, and REP_CHALLENGE is 'hold'"
        has_rules = one.outcome is Outcome.RULES
        if has_rules and is_challenge(one.status, one.body):  # unpacks an entry's body
            return "a page of HTML without a rule, and REP_CHALLENGE is 'hold'"
        return ""

    def setting_for(self, entry: Entry, origin: Origin, now: float) -> str:
        """Return the setting that decides about *origin*, in words; empty if none does."""
        own_answer = self.own_answer(origin, now)
        if own_answer is not None:
            return own_answer.setting
        if entry.unreachable_since is not None and self.ladder:
            return f"REP_UNREACHABLE_RULES is {LADDER!r}"
        if self.forbids_all(entry):
            return f"HTTP {entry.status}, and REP_FORBIDDEN is 'disallow'"
        return ""

    def forbids_all(self, entry: Entry) -> bool:
        """Whether a 401 or 403 for robots.txt forbids everything."""
        refused = entry.outcome is Outcome.MISSING and entry.status in FORBIDDEN
        answered = entry.unreachable_since is None
        return answered and refused and self._settings.forbidden == "disallow"


def is_own(entry: Entry) -> bool:
    """Whether *entry* holds an answer of the project's own, in place of a server's."""
    return entry.fetched_at is not None and entry.status is None


def in_outage(entry: Entry, now: float, settings: RepSettings) -> type[Failing]:
    """Return what an entry of an unreachable origin is good for (REP.md sections 4 and 13)."""
    seconds, limit = entry.unreachable_for, settings.unreachable_limit
    if settings.unreachable_rules != LADDER:
        if entry.has_copy:  # however old
            return Stale
        return Unrestricted if seconds >= limit else Unreachable
    if seconds < BLACKOUT:
        return Unreachable
    if seconds < limit:
        return Stale if entry.has_copy else Unrestricted
    # As for attempts: a share of the limit, more than a weekly crawl's pause.
    pages_answer = 0 <= now - entry.page_answered_at <= limit / SHARES
    return Unrestricted if pages_answer else Unreachable


def chosen(settings: RepSettings) -> list[str]:
    """Return the settings of REP.md section 13 that are on, with their values."""
    values = [(setting_name(name), getattr(settings, name)) for name in _NAMES]
    on = [
        (name, value)
        for name, value in values
        if value not in (None, "allow", "google")
    ]
    return [
        f"{name} for {', '.join(value)}"
        if isinstance(value, dict)
        else f"{name} is {value!r}"
        for name, value in on
    ]


def _own_answer(host: str, override: Override) -> Answer:
    """Return what counts for *host*."""
    path, until, ends_at = override.file, "", math.inf
    if override.until is not None:
        ends_at = override.until.timestamp()
        until = f" until {iso(ends_at)}"
    if path is None:
        setting = f"REP_OVERRIDES says to ignore it{until}"
        return Answer(Outcome.MISSING, "", 0, setting=setting, ends_at=ends_at)
    try:
        with Path(path).open("rb") as file:
            body = file.read(READ_BYTES)
        setting = f"REP_OVERRIDES names {path} instead{until}"
        return Answer(Outcome.RULES, "", 0, body=body, setting=setting, ends_at=ends_at)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"REP_OVERRIDES: can't read {path!r}, for {host}: {why}."
        ) from None
