"""Why is this URL allowed or not? (REP.md sections 7 and 8.) This module
needs no Scrapy, no I/O and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from scrapy_rep.inspection.pace import delay_refusal
from scrapy_rep.protocol import Decision, RobotsTxt
from scrapy_rep.protocol.availability import Outcome, is_html
from scrapy_rep.protocol.matching import LENGTH_BIT
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.outline import Outline
from scrapy_rep.protocol.robotstxt import Pace
from scrapy_rep.protocol.syntax import GLOBAL, obeyed
from scrapy_rep.text import counted, iso

STDIN_IN_WORDS = "standard input"

# The argument that means standard input, as in commands/task.py, which can't be
# imported here, since it imports this module.
_STDIN = "-"


def in_words(chain: Sequence[str]) -> str:
    """Return the name of a crawler that looks for groups of these tokens in this order:
    ``Googlebot, as fallback for Googlebot-Image`` for ``Googlebot-Image``, then
    ``Googlebot``."""
    return ", as fallback for ".join(reversed(chain)) or "an unknown crawler"


def _subject(chain: Sequence[str]) -> str:
    """Return the name of a crawler with these tokens, as the subject of a sentence."""
    if tuple(chain) == (GLOBAL,):
        return "Any crawler that no group names"
    return in_words(chain)


def _sentence(text: str) -> str:
    """Return *text* as a sentence: with a full stop, and a capital unless it begins
    with "robots.txt"."""
    if not text.startswith(ROBOTS_PATH.removeprefix("/")):
        text = text[:1].upper() + text[1:]
    return f"{text}."


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a robots.txt came from. Times are seconds since the epoch."""

    origin: str | None = None
    """None for a file that was given."""
    robots_url: str | None = None
    """None for a file that was given."""
    file: str | None = None
    """The name of a file that was given, ``-`` for standard input. Of a URL that was
    given to ``--lint`` or ``--compare``: the URL of its robots.txt."""
    status: int | None = None
    """The status of the HTTP response; None if there was none."""
    hops: int = 0
    """How many redirects were followed."""
    final_url: str | None = None
    """Where the redirects led."""
    fetched_at: float | None = None
    """When the answer came, or the earlier answer whose copy still applies."""
    fresh_until: float | None = None
    """Until when the answer is used without another fetch."""
    from_cache: bool = False
    """Whether nothing was fetched just now, since the cache had an answer."""
    stale: bool = False
    """Whether robots.txt is unreachable now, so that the copy of an earlier answer
    applies."""
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
    """Whether the URL is allowed, by which rule (``rule``, None if no rule decided),
    and of which group (``agent``, None if no group applied)."""
    reason: str
    """The decision in words, such as ``line 3: Disallow: /x``."""
    robots: RobotsFile
    """The file that decided."""
    steps: tuple[tuple[str, str], ...]
    """How :attr:`path` came about: what was done, and the result."""

    @property
    def allowed(self) -> bool:
        """Whether the URL may be fetched."""
        return self.decision.allowed

    @property
    def unreachable(self) -> bool:
        """Whether no robots.txt was available to decide by. Whether robots.txt itself
        may be fetched is known without one."""
        is_unreachable = self.robots.outcome is Outcome.UNREACHABLE
        return is_unreachable and self.path != ROBOTS_PATH

    @property
    def too_slow(self) -> bool:
        """Whether the line that decided asks for too long a crawl delay, so that no
        rule was compared."""
        rule = self.decision.rule
        if self.allowed or rule is None:
            return False
        # Each rule in a file that forbids anything has a pattern. Only the rule that
        # pace.py makes, to stand for the line with the delay, has none.
        return not rule.pattern

    @property
    def verdict(self) -> str:
        """``allowed``, ``disallowed`` or ``unreachable``."""
        if self.allowed:
            return "allowed"
        return "unreachable" if self.unreachable else "disallowed"

    @property
    def why(self) -> str:
        """The reason, with the group, and with the file's name if the file has one."""
        rule = self.decision.rule
        if rule is None:
            return self.reason
        place = f"line {rule.line}"
        what_rule_says = self.reason.removeprefix(place)
        source = self.robots.name
        if source:
            place = f"{source}:{rule.line}"
        return f"{place}{what_rule_says} (group {self.decision.agent})"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, ready for JSON (docs/command.md explains the fields)."""
        robots = self.robots
        facts = robots.facts
        rule = self.decision.rule
        group = self.decision.agent
        pace = Pace() if group is None else robots.parsed.pace(group)
        delay = pace.slowest
        visit_time = pace.visit_time
        return {
            "url": self.url,
            "agent": ",".join(self.chain) or None,
            "allowed": self.allowed,
            "line": None if rule is None else rule.line,
            "rule": None if rule is None else str(rule),
            "group": group,
            "reason": self.reason,
            "path": self.path,
            "outcome": robots.outcome.value,
            **asdict(facts),  # the fields have the names, and the order, of the facts
            "fetched_at": iso(facts.fetched_at),
            "fresh_until": iso(facts.fresh_until),
            "sha256": robots.sha256,
            "crawl_delay": None if delay is None else delay.seconds,
            "crawl_delay_line": None if delay is None else delay.line,
            "visit_time": None if visit_time is None else visit_time.value,
            "agent_in_words": in_words(self.chain),
            "verdict": self.verdict,
        }

    @property
    def answer(self) -> str:
        """The verdict as a sentence, without its full stop."""
        may = "must not"
        if self.allowed:
            may = "may"
        elif self.unreachable:
            may = "must not, for now,"
        crawler = _subject(self.chain)
        return f"{crawler} {may} fetch {self.url}"

    def sentences(self) -> list[str]:
        """Return how the verdict came about, step by step, for people."""
        robots = self.robots
        source = robots.name or facts_line(robots)
        sentences = [f"The robots.txt is {source}."]
        steps = dict(self.steps)
        requested_url = steps.get("requested", self.url)  # percent-encoded
        if requested_url != self.url:
            sentences.append(f"A crawl requests {requested_url}.")
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
        """Return a sentence about the group that applied, and why no group of an
        earlier token did."""
        token = self.decision.agent
        if token is None:  # no group applied, and the reason says why
            return [_sentence(self.reason)]
        # The user-agent lines that name the group's token.
        lines = []
        for group in self.robots.outline.groups:
            for agent in group.agents:
                if agent.token == token.lower():
                    lines.append(str(agent.line))
        # Those of the crawler's tokens are passed over that no group names.
        own_tokens = obeyed(self.chain, obey_global=False)
        if token == GLOBAL:
            for_whom = "all crawlers (*)"
            passed_over = own_tokens
        else:
            for_whom = token
            passed_over = own_tokens[: own_tokens.index(token)]
        numbers = ", ".join(lines)
        if len(lines) == 1:
            statement = f"the group for {for_whom} applies: line {numbers}"
        else:
            statement = f"the groups for {for_whom} apply together: lines {numbers}"
        if passed_over:
            absent = " or ".join(passed_over)
            statement = f"no group names {absent}, so {statement}"
        return [_sentence(statement)]

    def _about_rules(self) -> list[str]:
        """Return sentences about the rules that match, and which of them decides."""
        rules = list(self.robots.outline.rules_for(self._group))
        matching = self._matching_rules()
        if not rules:
            return ["It has no rules, so everything is allowed."]
        if not matching:
            count = counted(len(rules), "rule")
            return [f"None of its {count} matches, so the URL is allowed."]
        if len(matching) == 1:
            [rule] = matching
            text = f"line {rule.line}: {rule.rule}"
            if not rule.length:
                text += " (empty: restricts nothing)"
            return [f"One rule matches, {text}."]
        count = counted(len(matching), "rule")
        sentences = [f"{count} match. The longest decides:"]
        for rule in matching:
            text = f"line {rule.line}: {rule.rule}"
            octets = counted(rule.length, "octet")
            why = rule.why.removeprefix("lost: ")  # what follows says it, too
            sentences.append(f"  {text} ({octets}, {why})")
        return sentences

    def _about_pace(self) -> list[str]:
        """Return sentences about how slowly, and when, the group asks to be crawled."""
        pace = self.robots.parsed.pace(self.decision.agent or "")
        sentences = []
        slowest = pace.slowest
        if slowest is not None:
            sentence = f"It asks for {slowest.seconds:g} s between two requests (line {slowest.line})"
            if self.too_slow:
                sentence += ": more than REP_CRAWL_DELAY allows, so nothing is fetched"
            sentences.append(f"{sentence}.")
        visit_time = pace.visit_time
        if visit_time is not None:
            sentences.append(
                f"It asks for visits at {visit_time.value} (line {visit_time.line}), which is not obeyed."
            )
        return sentences

    def how(self) -> dict[str, Any]:
        """Return how the verdict came about, ready for JSON. The groups are those that
        name a token of the chain, or all crawlers."""
        tokens = [token.lower() for token in obeyed(self.chain, obey_global=True)]
        groups = []
        for group in self.robots.outline.groups:
            if any(map(group.names, tokens)):
                groups.append(
                    {
                        "agents": [agent.value for agent in group.agents],
                        "lines": [agent.line for agent in group.agents],
                        "rules": len(group.rules),
                        "applied": group.names(self._group),
                    }
                )
        steps = [{"step": step, "result": result} for step, result in self.steps]
        matching = [rule._asdict() for rule in self._matching_rules()]
        return {
            "chain": list(self.chain),
            "steps": steps,
            "groups": groups,
            "matched": matching,
        }

    @property
    def _group(self) -> str:
        """The token of the group that applied, as an ``Outline`` (protocol/outline.py)
        names it: in lower case; empty if no group applied."""
        return (self.decision.agent or "").lower()

    def _matching_rules(self) -> list[_MatchingRule]:
        """Return the matching rules of the group that applied, beginning with the rule
        that decides; none if no rules were compared."""
        if self.too_slow:
            return []
        # Keys are numbers that order rules as the matcher does: the largest wins, and
        # the bits from LENGTH_BIT on are the length of the pattern
        # (protocol/matching.py).
        rules_by_key = {}
        for line in self.robots.outline.rules_for(self._group):
            key = line.key_for(self.path)
            if key:
                rules_by_key[key] = line.rule
        best_key = max(rules_by_key, default=0)
        longest = best_key >> LENGTH_BIT
        matching = []
        for key in sorted(rules_by_key, reverse=True):
            rule = rules_by_key[key]
            length = key >> LENGTH_BIT
            if key == best_key:
                why = "decides"
            elif length == longest:
                why = "lost: as long, but Allow wins, then the first"
            else:
                why = "lost: shorter"
            matching.append(_MatchingRule(rule.line, str(rule), length, why))
        return matching


class _MatchingRule(NamedTuple):
    """A rule that matches a URL. The fields are those of the JSON (docs/command.md)."""

    line: int
    rule: str
    length: int
    """The rule's length in octets; the longest rule wins."""
    why: str
    """Why the rule decides, or lost."""


# Decisions that no rule makes.
_ALLOWED_WITHOUT_RULE = Decision(True, None, None)
_FORBIDDEN_WITHOUT_RULE = Decision(False, None, None)


@dataclass(frozen=True)
class RobotsFile:
    """A robots.txt, and what its origin or the project's settings make of it. Explains
    the verdicts on URLs."""

    outcome: Outcome
    body: bytes = b""
    """The file, if :attr:`outcome` is ``RULES``."""
    facts: Facts = field(default_factory=Facts)
    unrestricted: bool = False
    """Whether the file has been unreachable for so long that there are no restrictions
    (REP.md section 4)."""
    pass_unreachable: bool = False
    """Whether requests pass while the file is unreachable, since ``REP_UNREACHABLE`` is
    ``"allow"``."""
    forbids: bool = False
    """Whether ``REP_FORBIDDEN`` forbids everything, because of the status."""
    note: str = ""
    """What is strange about the latest answer."""

    @property
    def name(self) -> str:
        """For people: the file's name, or the URL that stands for it in :class:`Facts`;
        "" for neither."""
        if self.facts.file == _STDIN:
            return STDIN_IN_WORDS
        return self.facts.file or ""

    @cached_property
    def parsed(self) -> RobotsTxt:
        """The file as crawls read it, which decides."""
        return RobotsTxt.parse(self.body)

    @cached_property
    def outline(self) -> Outline:
        """The lines of the file, to explain it."""
        return Outline.of(self.body)

    @cached_property
    def sha256(self) -> str | None:
        """The hash of :attr:`body`; None if there is no file."""
        if self.outcome is not Outcome.RULES:
            return None
        return sha256(self.body).hexdigest()

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
        """Return the verdict of this file on *url*, with the reasons.

        :param path: the part of the URL that is compared
        :param chain: the crawler's tokens, most specific first
        :param obey_global: False for a crawler that obeys only groups that name it
        :param max_delay: seconds; an origin that asks for a longer crawl delay is not
            crawled
        :param steps: how *path* came about, see :attr:`Explanation.steps`
        """
        chain = tuple(chain)
        if path == ROBOTS_PATH:
            decision = _ALLOWED_WITHOUT_RULE
            reason = "robots.txt itself may always be fetched"
        elif self.outcome is Outcome.MISSING:
            decision, reason = self._decide_without_file()
        elif self.outcome is Outcome.UNREACHABLE:
            decision, reason = self._decide_while_unreachable()
        else:
            decision, reason = self._decide_by_rules(
                path, chain, obey_global, max_delay
            )
        return Explanation(url, chain, path, decision, reason, self, tuple(steps))

    def _decide_without_file(self) -> tuple[Decision, str]:
        """Return the decision about each URL, and the reason, if the origin has no
        robots.txt."""
        why = self.facts.setting or f"no robots.txt ({self.answer})"
        if self.forbids:
            return _FORBIDDEN_WITHOUT_RULE, f"{why}: nothing may be fetched"
        return _ALLOWED_WITHOUT_RULE, f"{why}: no restrictions"

    def _decide_while_unreachable(self) -> tuple[Decision, str]:
        """Return the decision about each URL, and the reason, if robots.txt is
        unreachable and there is no copy of an earlier answer."""
        error = noted(str(self.facts.error), self.note)
        why = f"robots.txt unreachable ({error})"
        if self.unrestricted:
            setting = self.facts.setting
            if setting:
                return _ALLOWED_WITHOUT_RULE, f"{why}, {setting}: no restrictions"
            limit = "for longer than REP_UNREACHABLE_LIMIT"
            return _ALLOWED_WITHOUT_RULE, f"{why} {limit}: no restrictions"
        if self.pass_unreachable:
            return (
                _ALLOWED_WITHOUT_RULE,
                f'{why}: REP_UNREACHABLE = "allow" lets it pass',
            )
        return _FORBIDDEN_WITHOUT_RULE, f"{why}: nothing may be fetched for now"

    def _decide_by_rules(
        self,
        path: str,
        chain: tuple[str, ...],
        obey_global: bool,
        max_delay: float | None,
    ) -> tuple[Decision, str]:
        """Return what the file decides about *path*, and the reason. Arguments as for
        :meth:`explain`."""
        # Too long a crawl delay forbids all URLs, so no rule is compared.
        refusal = delay_refusal(self.parsed, chain, obey_global, max_delay)
        if refusal is not None and refusal.rule is not None:
            delay_line = refusal.rule
            return refusal, f"line {delay_line.line}: {delay_line}"
        token, rules = self.parsed.rules(chain, obey_global)
        decision = self.parsed.decision(token, rules.find(path))
        rule = decision.rule
        if token is None:  # no group applies
            no_other = "no * group" if obey_global else "REP_OBEY_GLOBAL_GROUP is off"
            crawler = " or ".join(chain) or "this crawler"
            reason = f"no group for {crawler}, and {no_other}"
        elif rule is None:
            reason = f"no rule matches in the group for {token}"
        else:
            reason = f"line {rule.line}: {rule}"
            if not rule.pattern:
                reason += " (empty: restricts nothing)"
        if self.is_page:
            reason += " (robots.txt is an HTML page)"
        return decision, reason

    @property
    def answer(self) -> str:
        """The HTTP status, and what is strange about the answer."""
        status = self.facts.status
        hops = self.facts.hops
        if self.outcome is not Outcome.MISSING:
            if status is None:
                return ""
            page = ", an HTML page" if self.is_page else ""
            return noted(f"HTTP {status}{page}", self.note)
        # Some answers other than 4xx also mean that there is no file (REP.md section
        # 3).
        answer = f"HTTP {status}"
        if status is not None and 300 <= status < 400:
            after = f", after {hops} redirects" if hops else ""
            answer += f" without a usable target{after}"
        elif status is not None and status >= 500:
            answer += ' with a page that says "not found"'
        return noted(answer, self.note)


def noted(answer: str, note: str) -> str:
    """Return *answer*, followed by what is strange about it; *note* is "" if nothing
    is."""
    return f"{answer}; {note}" if note else answer


def facts_line(robots: RobotsFile) -> str:
    """Return the URL of a robots.txt, and in words what its :class:`Facts` say."""
    facts = robots.facts
    parts = []
    if facts.hops:
        redirects = counted(facts.hops, "redirect")
        parts.append(f"{redirects} to {facts.final_url}")
    if facts.error or robots.outcome is Outcome.UNREACHABLE:
        tried = "tried before" if facts.from_cache else "just tried"
        problem = facts.error or robots.answer
        parts.append(f"{tried}: {problem}")
    if facts.stale:
        parts.append(
            f"unreachable, so the copy of {iso(facts.fetched_at)} is still in use"
        )
    elif robots.outcome is not Outcome.UNREACHABLE:
        parts.append(_fetched_in_words(robots))
    if facts.setting:
        parts.append(facts.setting)
    text = ", ".join(parts)
    return f"{facts.robots_url}: {text}"


def _fetched_in_words(robots: RobotsFile) -> str:
    """Return when an answer was fetched, what it was, and until when it is fresh."""
    facts = robots.facts
    if facts.status is None:
        return "not fetched"
    when = "now"
    if facts.from_cache:
        when = f"{iso(facts.fetched_at)} (from the cache)"
    end = iso(facts.fresh_until)
    return f"fetched {when}, {robots.answer}, fresh until {end}"
