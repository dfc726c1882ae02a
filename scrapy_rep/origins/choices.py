"""What a project chooses beyond the protocol (REP.md section 13): a robots.txt of its own for some
hosts, and what some answers mean to it. All is off by default; then nothing here is made, or asked.

An entry records the origin's answer, so that projects can share a storage. What it means to this
project is worked out each time the entry is used.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.answer import READ_BYTES, Answer
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Resolution, ResolutionListener
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import FORBIDDEN, Outcome, is_challenge
from scrapy_rep.protocol.freshness import Standing, rung
from scrapy_rep.settings import LADDER, RepSettings, setting_name
from scrapy_rep.storages.base import Entry

if TYPE_CHECKING:
    from scrapy_rep.origins.cache import RobotsCache

logger = get_logger(__name__)

_NAMES = ("overrides", "forbidden", "challenge", "unreachable_rules")
_SETTING = re.compile(r"REP_([A-Z_]+)")


class Choices:
    def __init__(self, settings: RepSettings) -> None:
        """Raises ``SettingsError`` if a file of ``REP_OVERRIDES`` can't be read."""
        self._settings = settings
        self.ladder = settings.unreachable_rules == LADDER
        """Whether Google's rules of April 2026 apply to unreachable origins."""
        chosen = settings.overrides or {}
        self.overrides = {host: _override(host, path) for host, path in chosen.items()}
        """By host, or ``*.`` and a domain."""

    @classmethod
    def of(cls, settings: RepSettings) -> Choices | None:
        """Return those of *settings*; None if all have their defaults."""
        return cls(settings) if chosen(settings) else None

    def override(self, host: str) -> Answer | None:
        """Return what the project says of *host*: by its name, else by its closest domain."""
        found, domain = self.overrides.get(host), host
        while self.overrides and found is None and "." in domain:
            domain = domain.partition(".")[2]
            found = self.overrides.get(f"*.{domain}")
        return found

    def own_answer(self, origin: Origin) -> Answer | None:
        """Return the project's answer in place of *origin*'s, if it has one."""
        answer = self.override(origin.host)
        return None if answer is None else replace(answer, url=origin.robots_url)

    def refusal(self, one: Answer | Entry) -> str:
        """Return why this project doesn't accept such an answer; empty if it does. Another project
        may have stored the entry."""
        missing = one.outcome is Outcome.MISSING and one.status in FORBIDDEN
        if missing and self._settings.forbidden == "defer":
            return "REP_FORBIDDEN is 'defer'"
        rules = one.outcome is Outcome.RULES and self._settings.challenge == "defer"
        if rules and is_challenge(one.status, one.body):  # unpacks an entry's body
            return "a page of HTML without a rule, and REP_CHALLENGE is 'defer'"
        return ""

    def mark(self, state: OriginState, now: float) -> None:
        entry = state.entry
        failing = entry.unreachable_since is not None
        state.by, state.forbids, state.blackout = "", False, False
        if (override := self.override(state.origin.host)) is not None:
            state.by = override.by
        elif failing and self.ladder:
            state.by = f"REP_UNREACHABLE_RULES is {LADDER!r}"
            limit, page_ago = self._settings.unreachable_limit, now - entry.page_answered_at
            step = rung(entry.unreachable_for, page_ago, limit, has_copy=entry.has_copy)
            state.blackout = step is Standing.UNREACHABLE
            if state.standing is not Standing.ASK:
                state.standing = step
        elif not failing and entry.outcome is Outcome.MISSING and entry.status in FORBIDDEN:
            state.forbids = self._settings.forbidden == "disallow"
            if state.forbids:
                state.by = f"HTTP {entry.status}, and REP_FORBIDDEN is 'disallow'"


class ChoiceListener(ResolutionListener):
    """Logs and counts the project's choices; notes which origins still answer for pages."""

    part = "log of choices beyond the protocol"

    def __init__(self, context: CrawlContext, cache: RobotsCache, choices: Choices) -> None:
        self._context = context
        self._cache = cache
        self._choices = choices
        self._counted = BoundedSet()
        self._log = Limiter(logger, "origins about which a setting decides")
        connect = context.crawler.signals.connect
        connect(self._opened, signals.spider_opened)
        if choices.ladder:
            connect(self._answered, signals.response_received)

    async def _opened(self) -> None:
        from scrapy_rep.inspection.lint import lint  # most crawls don't need it

        extra = self._context.extra
        values = {"settings": ", ".join(chosen(self._context.settings))}
        logger.info("Beyond the protocol: %(settings)s", values, extra=extra)
        for host, override in self._choices.overrides.items():
            has_file = override.outcome is Outcome.RULES
            if has_file and (found := await run_in_thread(lint, override.body)):
                logger.warning(
                    "REP_OVERRIDES, the file for %(host)s, line %(line)d: %(what)s. All findings, "
                    "%(count)d: scrapy robots --lint",
                    {"host": host, "line": found[0].line or 0, "what": found[0].message}
                    | {"count": len(found)},
                    extra=extra,
                )

    async def resolved(self, resolution: Resolution) -> None:
        """Count and log an origin about which a setting decides."""
        state, answer = resolution.state, resolution.answer
        by = (answer.by if answer is not None else "") or state.by
        if by and self._counted.add((state.name, by)):
            for name in _SETTING.findall(by):
                self._context.stats.inc_value(f"rep/beyond/{name.lower()}")
            message = "robots.txt of %(origin)s: %(by)s"
            self._log.log(message, {"origin": state.name, "by": by}, self._context.spider)

    def _answered(self, response: Response, request: Request) -> None:
        working = response.status < 500 and response.status != 429
        if working and "cached" not in response.flags:
            try:
                origin = origin_of(request)
            except ValueError:
                return  # the protocol doesn't cover it
            if request.url != origin.robots_url:
                self._cache.page_answered(origin)


def chosen(settings: RepSettings) -> list[str]:
    """Return the settings of REP.md section 13 that are on, with their values."""
    values = [(setting_name(name), getattr(settings, name)) for name in _NAMES]
    on = [(name, value) for name, value in values if value not in (None, "allow", "google")]
    return [
        f"{name} for {', '.join(value)}" if isinstance(value, dict) else f"{name} is {value!r}"
        for name, value in on
    ]


def _override(host: str, path: str | None) -> Answer:
    if path is None:
        by = "REP_OVERRIDES says to ignore it"
        return Answer(Outcome.MISSING, "", 0, by=by, asked=False)
    try:
        with Path(path).open("rb") as file:
            body, by = file.read(READ_BYTES), f"REP_OVERRIDES names {path} instead"
            return Answer(Outcome.RULES, "", 0, body=body, by=by, asked=False)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SettingsError(f"REP_OVERRIDES: can't read {path!r}, for {host}: {why}.") from None
