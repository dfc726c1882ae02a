"""Explanations in print: a block for one URL, a table for many, a wider one for many agents; and as
JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_rep.commands.terminal import BOLD, DIM, GREEN, RED, YELLOW
from scrapy_rep.engine.words import clean, counted, iso
from scrapy_rep.inspection.explanation import Explanation, Facts, RobotsFile
from scrapy_rep.inspection.outline import GLOBAL
from scrapy_rep.protocol.availability import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.terminal import Output

# A block shows this many of the rules that lost; `--explain` shows all.
_SHOWN = 5


def verdict(one: Explanation) -> str:
    """The verdict in one word."""
    return "allowed" if one.allowed else "unreachable" if one.unreachable else "disallowed"


_COLOURS = {"allowed": GREEN, "disallowed": RED, "unreachable": YELLOW}


def block(output: Output, one: Explanation, *, explain: bool, most_delay: float) -> None:
    """Print all about one URL and one agent.

    :param most_delay: the setting ``REP_CRAWL_DELAY``
    """
    word = verdict(one)
    output.line(f"{output.paint(word, BOLD, _COLOURS[word])}  {clean(one.url)}")
    rows = [("agent", one.agent or "none that can be told"), ("because", one.reason)]
    if one.decision.agent is not None:
        rows.append(("group", _group(one)))
    if one.delay is not None:
        rows.append(("crawl-delay", _delay(*one.delay, most_delay)))
    matched = one.matched
    lost = matched[1:] if not explain else []
    rows += [("lost", f"line {m.rule.line}: {m.rule} ({m.why[6:]})") for m in lost[:_SHOWN]]
    if len(lost) > _SHOWN:
        rows.append(("", f"and {len(lost) - _SHOWN} more: see --explain"))
    rows += facts_rows(one.robots)
    if explain:
        rows += [(step, result) for step, result in one.steps]
        if len(one.chain) > 1:
            rows.append(("chain", ", then ".join(one.chain)))
        for group, applied in one.considered:
            names = ", ".join(agent.value for agent in group.agents)
            count = f"{len(group.rules)} rule" + ("s" if len(group.rules) != 1 else "")
            rows.append(
                (
                    "group applied" if applied else "group passed over",
                    f"line {group.agents[0].line}: {names} ({count})",
                )
            )
        others = len(one.robots.outline.groups) - len(one.considered)
        if others:
            rows.append(("other groups", f"{others}, for other agents"))
        rows += [
            ("rule", f"line {m.rule.line}: {m.rule} ({m.length} octets; {m.why})") for m in matched
        ]
    output.table(rows, [(DIM, "")] * len(rows), indent="  ")


def _delay(seconds: float, line: int, most: float) -> str:
    text = f"{seconds:g} s (line {line})"
    if not most:
        return f"{text}, ignored: REP_CRAWL_DELAY is off"
    return text if seconds <= most else f"{text}, more than REP_CRAWL_DELAY allows: {most:g} s"


def _group(one: Explanation) -> str:
    token = one.decision.agent or ""
    named = [group for group in one.robots.outline.groups if group.names(token.lower())]
    where = ", ".join(
        str(next(agent.line for agent in group.agents if agent.token == token.lower()))
        for group in named
    )
    many = f"lines {where}, as one" if len(named) > 1 else f"line {where}"
    if token == GLOBAL and one.chain and one.chain != ("*",):
        return f"* ({many}), since none names {' or '.join(one.chain)}"
    return f"{token} ({many})"


def facts_rows(robots: RobotsFile) -> list[tuple[str, str]]:
    """What is to be said of a robots.txt: label and text."""
    facts = robots.facts
    if facts.file is not None:
        name = "standard input" if facts.file == "-" else facts.file
        return [("robots.txt", name)]
    label = "asked for" if robots.outcome is Outcome.UNREACHABLE else "fetched"
    return [("robots.txt", _address(facts)), (label, _freshness(robots))]


def facts_line(robots: RobotsFile) -> str:
    """The same in one line."""
    (_, line), *rows = facts_rows(robots)
    for label, text in rows:
        line += f": {label} {text}"
    return line


def _address(facts: Facts) -> str:
    text = facts.robots_url or ""
    if facts.hops:
        text += f", {counted(facts.hops, 'redirect')} to {facts.final_url}"
    return text


def _freshness(robots: RobotsFile) -> str:
    facts = robots.facts
    status = robots.answer
    whence = "from the cache" if facts.from_cache else "now"
    if robots.outcome is Outcome.UNREACHABLE:
        return f"{whence}, in vain: {facts.error or status}"
    if facts.stale:
        return (
            f"{iso(facts.fetched_at)}; that copy is applied since the file is unreachable "
            f"({whence}: {facts.error})"
        )
    if facts.from_cache:
        whence = f"{iso(facts.fetched_at)} ({whence})"
    return f"{whence}, {status}, fresh until {iso(facts.fresh_until)}"


def _short(one: Explanation) -> str:
    """Why, in few words."""
    rule = one.decision.rule
    if rule is not None:
        return f"line {rule.line}: {rule}".rstrip()
    if one.robots.outcome is Outcome.MISSING:
        return "no robots.txt"
    if one.robots.outcome is Outcome.UNREACHABLE:
        return "robots.txt unreachable"
    return "no rule matches" if one.decision.agent is not None else "no group applies"


def table(output: Output, all_of_them: Sequence[Explanation]) -> None:
    """Print many URLs for one agent."""
    rows = [(verdict(one), one.decision.agent or "-", _short(one), one.url) for one in all_of_them]
    colours = [(_COLOURS[row[0]], "", "", "") for row in rows]
    heading = ("verdict", "group", "because", "URL")
    output.table([heading, *rows], [(DIM,) * 4, *colours])
    _files(output, all_of_them)


def matrix(output: Output, all_of_them: Sequence[Explanation], agents: int) -> None:
    """Print many agents, a column for each.

    :param all_of_them: by URL, each with all agents in the same order
    :param agents: how many there are
    """
    heading = [*(one.agent or "-" for one in all_of_them[:agents]), "URL"]
    rows, colours = [heading], [[DIM] * len(heading)]
    for at in range(0, len(all_of_them), agents):
        of_url = all_of_them[at : at + agents]
        rows.append([*map(_cell, of_url), of_url[0].url])
        colours.append([*(_COLOURS[verdict(one)] for one in of_url), ""])
    output.table(rows, colours)
    _files(output, all_of_them)


def _cell(one: Explanation) -> str:
    rule = one.decision.rule
    return f"{verdict(one)}, line {rule.line}" if rule else verdict(one)


def _files(output: Output, all_of_them: Sequence[Explanation]) -> None:
    """Say of each robots.txt where it came from."""
    output.line()
    for robots in {id(one.robots): one.robots for one in all_of_them}.values():
        output.line(output.paint(clean(facts_line(robots)), DIM))


def as_json(one: Explanation, *, explain: bool = False) -> dict[str, Any]:
    """Return what ``--json`` prints of an explanation (README.md documents the fields)."""
    robots, facts, rule = one.robots, one.robots.facts, one.decision.rule
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
        "crawl_delay": one.delay and one.delay[0],
        "crawl_delay_line": one.delay and one.delay[1],
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
            {
                "line": match.rule.line,
                "rule": str(match.rule).rstrip(),
                "length": match.length,
                "why": match.why,
            }
            for match in one.matched
        ]
    return data
