"""Explanations in print: one URL as a block, many as a table, many agents as a wider table; and as
JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.terminal import BOLD, DIM, GREEN, RED, YELLOW
from scrapy_rep.engine.words import clean, counted, iso
from scrapy_rep.inspection.explanation import Explanation, RobotsFile
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.terminal import Output

# How many of the losing rules a block shows; `--explain` shows all.
_SHOWN = 5


def verdict(one: Explanation) -> str:
    """Return the verdict in one word."""
    return "allowed" if one.allowed else "unreachable" if one.unreachable else "disallowed"


_COLOURS = {"allowed": GREEN, "disallowed": RED, "unreachable": YELLOW}


def block(output: Output, one: Explanation, *, explain: bool, most_delay: float) -> None:
    """Print all about one URL and one agent. *most_delay* is the setting ``REP_CRAWL_DELAY``."""
    rows = [("agent", one.agent or "unknown: the * group applies"), ("because", one.reason)]
    if one.decision.agent is not None:
        rows.append(("group", _group(one)))
    pace = one.pace
    if (slowest := pace.slowest) is not None:
        rows.append((slowest.field, _delay(slowest.seconds, slowest.line, most_delay)))
    if (visit := pace.visit_time) is not None:
        rows.append(("visit-time", f"{visit.value} (line {visit.line}), not obeyed"))
    matched = one.matched
    if not explain:
        lost = [f"line {m.rule.line}: {m.rule} ({m.why[6:]})" for m in matched[1:]]
        rows += [("lost", text) for text in lost[:_SHOWN]]
        if len(lost) > _SHOWN:
            rows.append(("", f"and {len(lost) - _SHOWN} more: see --explain"))
    rows += facts_rows(one.robots)
    if explain:
        rows += one.steps
        if len(one.chain) > 1:
            rows.append(("chain", ", then ".join(one.chain)))
        for group, applied in one.considered:
            label = "group applied" if applied else "group passed over"
            names = ", ".join(agent.value for agent in group.agents)
            rules = counted(len(group.rules), "rule")
            rows.append((label, f"line {group.agents[0].line}: {names} ({rules})"))
        others = len(one.robots.outline.groups) - len(one.considered)
        if others:
            rows.append(("other groups", f"{others}, for other agents"))
        rows += [
            ("rule", f"line {m.rule.line}: {m.rule} ({m.length} octets; {m.why})") for m in matched
        ]
    word = verdict(one)
    output.block(f"{output.paint(word, BOLD, _COLOURS[word])}  {clean(one.url)}", rows)


def _delay(seconds: float, line: int, most: float) -> str:
    text = f"{seconds:g} s (line {line})"
    if not most:
        return f"{text}, ignored: REP_CRAWL_DELAY is off"
    return text if seconds <= most else f"{text}, more than REP_CRAWL_DELAY allows: {most:g} s"


def _group(one: Explanation) -> str:
    token = one.decision.agent or ""
    lines = [
        str(next(agent.line for agent in group.agents if agent.token == token.lower()))
        for group in one.robots.outline.groups
        if group.names(token.lower())
    ]
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(lines)}, as one"
    if token == GLOBAL and one.chain and one.chain != (GLOBAL,):
        return f"* ({where}); no group names {' or '.join(one.chain)}"
    return f"{token} ({where})"


def facts_rows(robots: RobotsFile) -> list[tuple[str, str]]:
    """Return where a robots.txt comes from: labels and texts."""
    facts = robots.facts
    if facts.file is not None:
        return [("robots.txt", "standard input" if facts.file == "-" else facts.file)]
    address = facts.robots_url or ""
    if facts.hops:
        address += f", {counted(facts.hops, 'redirect')} to {facts.final_url}"
    by = [("setting", facts.setting)] if facts.setting else []
    tried = "tried before" if facts.from_cache else "just tried"
    if facts.status is None and robots.outcome is not Outcome.UNREACHABLE:
        return [("robots.txt", f"{address}, not fetched"), *by]
    if robots.outcome is Outcome.UNREACHABLE:
        return [("robots.txt", address), (tried, facts.error or robots.answer), *by]
    fetched = str(iso(facts.fetched_at)) if facts.from_cache or facts.stale else "now"
    if facts.stale:
        fetched += f", still in use: the site is unreachable ({tried}: {facts.error})"
    else:
        cached = " (from the cache)" if facts.from_cache else ""
        fetched += f"{cached}, {robots.answer}, fresh until {iso(facts.fresh_until)}"
    return [("robots.txt", address), ("fetched", fetched), *by]


def facts_line(robots: RobotsFile) -> str:
    """Return the same in one line."""
    (_, line), *rows = facts_rows(robots)
    for label, text in rows:
        line += f": {label}{' ' if label == 'fetched' else ': '}{text}"
    return line


def _short(one: Explanation) -> str:
    """Return the reason in few words."""
    rule = one.decision.rule
    if rule is not None:
        return f"line {rule.line}: {rule}".rstrip()
    if one.robots.outcome is Outcome.MISSING:
        return "no robots.txt" if one.allowed else one.reason
    if one.robots.outcome is Outcome.UNREACHABLE:
        return "robots.txt unreachable"
    return "no rule matches" if one.decision.agent is not None else "no group applies"


def table(output: Output, explanations: Sequence[Explanation]) -> None:
    """Print many URLs for one agent."""
    rows = [("verdict", "group", "because", "URL")]
    rows += [
        (verdict(one), one.decision.agent or "-", _short(one), one.url) for one in explanations
    ]
    colours = [(DIM,) * 4, *((_COLOURS[row[0]], "", "", "") for row in rows[1:])]
    output.table(rows, colours)
    _files(output, explanations)


def matrix(output: Output, explanations: Sequence[Explanation], agents: int) -> None:
    """Print many agents, a column for each. *explanations* are in the order of the URLs, then of
    the agents."""
    heading = [*(one.agent or "-" for one in explanations[:agents]), "URL"]
    rows, colours = [heading], [[DIM] * len(heading)]
    for at in range(0, len(explanations), agents):
        of_url = explanations[at : at + agents]
        rows.append([*map(_cell, of_url), of_url[0].url])
        colours.append([*(_COLOURS[verdict(one)] for one in of_url), ""])
    output.table(rows, colours)
    _files(output, explanations)


def _cell(one: Explanation) -> str:
    rule = one.decision.rule
    return f"{verdict(one)}, line {rule.line}" if rule else verdict(one)


def _files(output: Output, explanations: Sequence[Explanation]) -> None:
    """Print where each robots.txt comes from."""
    output.line()
    for robots in {id(one.robots): one.robots for one in explanations}.values():
        output.line(output.paint(clean(facts_line(robots)), DIM))


def as_json(one: Explanation, *, explain: bool = False) -> dict[str, Any]:
    """Return what ``--json`` prints of an explanation (docs/command.md explains the fields)."""
    robots, facts, rule = one.robots, one.robots.facts, one.decision.rule
    _, slowest, visit = one.pace
    data: dict[str, Any] = {
        "url": one.url,
        "agent": one.agent,
        "allowed": one.allowed,
        "line": rule.line if rule else None,
        "rule": str(rule).rstrip() if rule else None,
        "group": one.decision.agent,
        "reason": one.reason,
        "path": one.path,
        "outcome": robots.outcome.value,
        **asdict(facts),  # the fields have the names, and the order, of the facts
        "fetched_at": iso(facts.fetched_at),
        "fresh_until": iso(facts.fresh_until),
        "sha256": robots.sha256,
        "crawl_delay": slowest and slowest.seconds,
        "crawl_delay_line": slowest and slowest.line,
        "visit_time": visit and visit.value,
    }
    if explain:
        data["chain"] = list(one.chain)
        data["steps"] = [{"step": step, "result": result} for step, result in one.steps]
        data["groups"] = [
            {
                "agents": [agent.value for agent in group.agents],
                "lines": [agent.line for agent in group.agents],
                "rules": len(group.rules),
                "applied": applied,
            }
            for group, applied in one.considered
        ]
        data["matched"] = [
            {"line": m.rule.line, "rule": str(m.rule).rstrip(), "length": m.length, "why": m.why}
            for m in one.matched
        ]
    return data
