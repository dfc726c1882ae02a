"""Why is this URL allowed or not? (REP.md sections 7 and 8.) No Scrapy, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

from scrapy_rep.inspection.pace import too_slow
from scrapy_rep.protocol import Decision, RobotsTxt
from scrapy_rep.protocol.availability import Outcome, is_html
from scrapy_rep.protocol.matching import LENGTH_BIT
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.robotstxt import Pace
from scrapy_rep.protocol.syntax import GLOBAL, obeyed
from scrapy_rep.text import counted, iso

STDIN = "standard input"


def in_words(chain: Sequence[str]) -> str:
    """Return the name of a crawler with these tokens: ``GPTBot, as fallback for Googlebot``."""
    return ", as fallback for ".join(reversed(chain)) or "an unknown crawler"


def _subject(chain: Sequence[str]) -> str:
    """Return the same as the subject of a sentence."""
    return (
        "Any crawler that no group names"
        if tuple(chain) == (GLOBAL,)
        else in_words(chain)
    )


def _sentence(text: str) -> str:
    first = text[:1] if text.startswith(ROBOTS_PATH[1:]) else text[:1].upper()
    return f"{first}{text[1:]}."


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a robots.txt came from. Times are seconds since the epoch."""

    origin: str | None = None
    """None for a file that was given."""
    robots_url: str | None = None
    file: str | None = None
    status: int | None = None
    hops: int = 0
    final_url: str | None = None
    """After redirects."""
    fetched_at: float | None = None
    fresh_until: float | None = None
    from_cache: bool = False
    stale: bool = False
    """Unreachable now: the copy of an earlier answer applies."""
    error: str | None = None
    """What happened at the last attempt, if it failed."""
    setting: str | None = None
    """The setting that decides beyond the protocol, in words."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one URL for one crawler."""

    url: str
    chain: tuple[str, ...]
    """The crawler's tokens; empty if none is known."""
    path: str
    """The part of the URL that was compared."""
    decision: Decision
    reason: str
    robots: RobotsFile
    steps: tuple[tuple[str, str], ...]
    """How :attr:`path` came about: what was done, and the result."""

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    @property
    def unreachable(self) -> bool:
        """Whether no robots.txt was available to decide by."""
        return self.robots.outcome is Outcome.UNREACHABLE and self.path != ROBOTS_PATH

    @property
    def too_slow(self) -> bool:
        """Whether the line that decided asks for too long a crawl delay, so that no rule was compared."""
        rule = self.decision.rule
        # A rule with an empty pattern forbids nothing.
        return not self.allowed and rule is not None and not rule.pattern

    @property
    def verdict(self) -> str:
        return (
            "allowed"
            if self.allowed
            else "unreachable"
            if self.unreachable
            else "disallowed"
        )

    @property
    def why(self) -> str:
        """The reason, with the group, and with the file's name if there is one."""
        rule, file, why = self.decision.rule, self.robots.facts.file, self.reason
        if rule is not None:
            place = (
                f"{STDIN if file == '-' else file}:{rule.line}"
                if file
                else f"line {rule.line}"
            )
            why = f"{place}{why.removeprefix(f'line {rule.line}')} (group {self.decision.agent})"
        return why

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, ready for JSON (docs/command.md explains the fields)."""
        robots, facts = self.robots, self.robots.facts
        _, rule, group = self.decision
        pace = Pace() if group is None else robots.parsed.pace(group)
        delay, visit = pace.slowest, pace.visit_time
        return {
            "url": self.url,
            "agent": ",".join(self.chain) or None,
            "allowed": self.allowed,
            "line": rule and rule.line,
            "rule": rule and str(rule),
            "group": group,
            "reason": self.reason,
            "path": self.path,
            "outcome": robots.outcome.value,
            **asdict(facts),  # the fields have the names, and the order, of the facts
            "fetched_at": iso(facts.fetched_at),
            "fresh_until": iso(facts.fresh_until),
            "sha256": robots.sha256,
            "crawl_delay": delay and delay.seconds,
            "crawl_delay_line": delay and delay.line,
            "visit_time": visit and visit.value,
            "agent_in_words": in_words(self.chain),
            "verdict": self.verdict,
        }

    @property
    def answer(self) -> str:
        """The verdict as a sentence, without its full stop."""
        may = "may" if self.allowed else "must not"
        if self.unreachable and not self.allowed:
            may = "must not, for now,"
        return f"{_subject(self.chain)} {may} fetch {self.url}"

    def sentences(self) -> list[str]:
        """Return how the verdict came about, step by step, for people."""
        robots = self.robots
        if robots.facts.file:
            source = STDIN if robots.facts.file == "-" else robots.facts.file
            sentences = [f"The robots.txt is {source}."]
        else:
            sentences = [f"The robots.txt is {facts_line(robots)}."]
        steps = dict(self.steps)
        if steps.get("requested", self.url) != self.url:
            sentences.append(f"A crawl requests {steps['requested']}.")
        if self.path != self.url:
            sentences.append(f"Of the URL, {self.path} is compared.")
        if self.path == ROBOTS_PATH or robots.outcome is not Outcome.RULES:
            sentences.append(_sentence(self.reason))
            return sentences
        if robots.is_page:
            sentences.append(
                "It is an HTML page. What looks like a rule in it counts all the same."
            )
        sentences += self._about_group()
        if self.decision.agent is not None:
            if not self.too_slow:
                sentences += self._about_rules()
            sentences += self._about_pace()
        return sentences

    def _about_group(self) -> list[str]:
        """Say which group applied, and why none before it."""
        token = self.decision.agent
        if token is None:
            return [_sentence(self.reason)]
        lines = []
        for group in self.robots.outline.groups:
            lines += [
                agent.line for agent in group.agents if agent.token == token.lower()
            ]
        where = f"line {lines[0]}"
        groups, apply = "the group", "applies"
        if len(lines) > 1:
            where = f"lines {', '.join(map(str, lines))}"
            groups, apply = "the groups", "apply together"
        named = obeyed(self.chain, False)
        for_whom = token
        if token == GLOBAL:
            for_whom = "all crawlers (*)"
            passed_over = named
        else:
            passed_over = named[: named.index(token)]
        statement = f"{groups} for {for_whom} {apply}: {where}"
        if passed_over:
            statement = f"no group names {' or '.join(passed_over)}, so {statement}"
        return [_sentence(statement)]

    def _about_rules(self) -> list[str]:
        """Say which rules match, and which of them decides."""
        token = (self.decision.agent or "").lower()
        count = sum(1 for _ in self.robots.outline.rules_for(token))
        matched = self._matched()
        if not count:
            return ["It has no rules, so everything is allowed."]
        if not matched:
            return [
                f"None of its {counted(count, 'rule')} matches, so the URL is allowed."
            ]
        if len(matched) == 1:
            [rule] = matched
            empty = "" if rule["length"] else " (empty: restricts nothing)"
            return [f"One rule matches, line {rule['line']}: {rule['rule']}{empty}."]
        sentences = [f"{counted(len(matched), 'rule')} match. The longest decides:"]
        for rule in matched:
            octets, why = (
                counted(rule["length"], "octet"),
                rule["why"].removeprefix("lost: "),
            )
            sentences.append(f"  line {rule['line']}: {rule['rule']} ({octets}, {why})")
        return sentences

    def _about_pace(self) -> list[str]:
        pace = self.robots.parsed.pace(self.decision.agent or "")
        sentences = []
        if (slowest := pace.slowest) is not None:
            sentence = f"It asks for {slowest.seconds:g} s between two requests (line {slowest.line})"
            if self.too_slow:
                sentence += ": more than REP_CRAWL_DELAY allows, so nothing is fetched"
            sentences.append(f"{sentence}.")
        if (visit := pace.visit_time) is not None:
            sentences.append(
                f"It asks for visits at {visit.value} (line {visit.line}), which is not obeyed."
            )
        return sentences

    def how(self) -> dict[str, Any]:
        """Return how the verdict came about, ready for JSON. The groups are those that name a token
        of the chain, or all crawlers."""
        tokens = {token.lower() for token in obeyed(self.chain, True)}
        groups = [
            {
                "agents": [agent.value for agent in group.agents],
                "lines": [agent.line for agent in group.agents],
                "rules": len(group.rules),
                "applied": group.names((self.decision.agent or "").lower()),
            }
            for group in self.robots.outline.groups
            if any(map(group.names, tokens))
        ]
        steps = [{"step": step, "result": result} for step, result in self.steps]
        matched = self._matched()
        return {
            "chain": list(self.chain),
            "steps": steps,
            "groups": groups,
            "matched": matched,
        }

    def _matched(self) -> list[dict[str, Any]]:
        """Return the matching rules of the group that applied, and why each wins or loses; none if they
        were not compared."""
        if self.too_slow:
            return []
        lines = self.robots.outline.rules_for((self.decision.agent or "").lower())
        keys = {key: line.rule for line in lines if (key := line.key_for(self.path))}
        best, found = max(keys, default=0), list[dict[str, Any]]()
        for key, rule in sorted(keys.items(), reverse=True):
            length, why = key >> LENGTH_BIT, "lost: shorter"
            if length == best >> LENGTH_BIT:
                why = (
                    "decides"
                    if key == best
                    else "lost: as long, but Allow wins, then the first"
                )
            found.append(
                {"line": rule.line, "rule": str(rule), "length": length, "why": why}
            )
        return found


@dataclass(frozen=True)
class RobotsFile:
    """What is known of a robots.txt. Explains URLs."""

    outcome: Outcome
    body: bytes = b""
    facts: Facts = field(default_factory=Facts)
    unrestricted: bool = False
    """Unreachable for so long that there are no restrictions (REP.md section 4)."""
    pass_unreachable: bool = False
    """``REP_UNREACHABLE = "allow"``."""
    forbids: bool = False
    """``REP_FORBIDDEN``: everything is forbidden."""
    note: str = ""
    """What is strange about the latest answer."""

    @cached_property
    def parsed(self) -> RobotsTxt:
        return RobotsTxt.parse(self.body)

    @cached_property
    def outline(self) -> Outline:
        return Outline.of(self.body)

    @cached_property
    def sha256(self) -> str | None:
        """Of the body, cut to size; None if there is no body."""
        return sha256(self.body).hexdigest() if self.outcome is Outcome.RULES else None

    @cached_property
    def is_page(self) -> bool:
        """Whether the file is an HTML page. Rules in it count all the same."""
        return self.outcome is Outcome.RULES and is_html(self.body)

    def explain(
        self,
        url: str,
        path: str,
        chain: Sequence[str],
        *,
        obey_global: bool = True,
        max_delay: float | None = None,
        steps: Sequence[tuple[str, str]] = (),
    ) -> Explanation:
        """Return what this file means for *url*.

        :param path: the part of it that is compared
        :param chain: the crawler's tokens, most specific first
        :param obey_global: False for a crawler that obeys only groups that name it
        :param max_delay: seconds; an origin that asks for a longer crawl delay is not crawled
        """
        decision, reason = self._decide(path, tuple(chain), obey_global, max_delay)
        return Explanation(
            url, tuple(chain), path, decision, reason, self, tuple(steps)
        )

    def _decide(
        self,
        path: str,
        chain: tuple[str, ...],
        obey_global: bool,
        max_delay: float | None,
    ) -> tuple[Decision, str]:
        free = Decision(True, None, None)
        if path == ROBOTS_PATH:
            return free, "robots.txt itself may always be fetched"
        if self.outcome is Outcome.MISSING:
            why = self.facts.setting or f"no robots.txt ({self.answer})"
            meant = "nothing may be fetched" if self.forbids else "no restrictions"
            return Decision(not self.forbids, None, None), f"{why}: {meant}"
        if self.outcome is Outcome.UNREACHABLE:
            why = f"robots.txt unreachable ({noted(str(self.facts.error), self.note)})"
            if self.unrestricted:
                by = self.facts.setting or "for longer than REP_UNREACHABLE_LIMIT"
                return (
                    free,
                    f"{why}{', ' if self.facts.setting else ' '}{by}: no restrictions",
                )
            if self.pass_unreachable:
                return free, f'{why}: REP_UNREACHABLE = "allow" lets it pass'
            return Decision(False, None, None), f"{why}: nothing may be fetched for now"
        refusal = too_slow(self.parsed, chain, obey_global, max_delay)
        if refusal is not None and refusal.rule is not None:
            return refusal, f"line {refusal.rule.line}: {refusal.rule}"
        token, rules = self.parsed.rules(chain, obey_global)
        decision = self.parsed.decision(token, rules.find(path))
        rule = decision.rule
        if token is None:
            reason = f"no group for {' or '.join(chain) or 'this crawler'}, "
            reason += (
                "and no * group" if obey_global else "and REP_OBEY_GLOBAL_GROUP is off"
            )
        elif rule is None:
            reason = f"no rule matches in the group for {token}"
        else:
            empty = "" if rule.pattern else " (empty: restricts nothing)"
            reason = f"line {rule.line}: {rule}{empty}"
        return decision, reason + " (robots.txt is an HTML page)" * self.is_page

    @property
    def answer(self) -> str:
        """The HTTP status, and what is strange about the answer."""
        status, hops = self.facts.status, self.facts.hops
        if self.outcome is not Outcome.MISSING:
            if status is None:
                return ""
            page = ", an HTML page" if self.is_page else ""
            return noted(f"HTTP {status}{page}", self.note)
        answer = f"HTTP {status}"
        if status is not None and 300 <= status < 400:
            after = f", after {hops} redirects" if hops else ""
            answer += f" without a usable target{after}"
        elif status is not None and status >= 500:
            answer += ' with a page that says "not found"'
        return noted(answer, self.note)


def noted(answer: str, note: str) -> str:
    """Return *answer* with what is strange about it."""
    return f"{answer}; {note}" if note else answer


def facts_line(robots: RobotsFile) -> str:
    """Return where a robots.txt comes from."""
    facts = robots.facts
    told = [str(facts.robots_url)]
    if facts.hops:
        told.append(f"{counted(facts.hops, 'redirect')} to {facts.final_url}")
    if facts.error or robots.outcome is Outcome.UNREACHABLE:
        tried = "tried before" if facts.from_cache else "just tried"
        told.append(f"{tried}: {facts.error or robots.answer}")
    if facts.stale:
        told.append(
            f"unreachable, so the copy of {iso(facts.fetched_at)} is still in use"
        )
    elif robots.outcome is not Outcome.UNREACHABLE:
        fetched = f"fetched {iso(facts.fetched_at) if facts.from_cache else 'now'}"
        cached = " (from the cache)" if facts.from_cache else ""
        fresh = f"{robots.answer}, fresh until {iso(facts.fresh_until)}"
        told.append(
            "not fetched" if facts.status is None else f"{fetched}{cached}, {fresh}"
        )
    if facts.setting:
        told.append(facts.setting)
    return f"{told[0]}: {', '.join(told[1:])}"
