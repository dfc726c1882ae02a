"""What ``scrapy robots --lint`` prints of the findings about a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy_rep.inspection.findings import SEVERITIES, some
from scrapy_rep.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.output import Output
    from scrapy_rep.inspection.findings import Finding

# Findings about a file that people are shown, the most severe ones. With three lines each, and the
# counts, a file takes at most 40 lines.
_MAX_SHOWN = 12

# Characters of a line that are shown below a finding.
_SHOWN = 100


def print_findings(output: Output, source: str, findings: Sequence[Finding]) -> None:
    """Print what was found in *source*, and how much that is. Programs get all of it."""
    shown = _most_severe(findings)
    for finding in findings:
        place = f"{source}:{finding.line}" if finding.line else source
        data = {
            "source": source,
            "line": finding.line,
            "lines": finding.lines,
            "code": finding.code,
            "message": finding.message,
            "fix": finding.fix,
            "agents": finding.agents,
            "text": finding.text,
            "severity": finding.severity,
        }
        if output.is_for_programs:
            output.put(data)
        elif finding in shown:
            message = f"{finding.message} [{finding.code}]"
            output.line(
                f"{place}: {finding.severity}: {message}", coloured=finding.severity
            )
            if lines := _lines(finding):
                output.line(f"    {lines}")
            output.line(f"    fix: {finding.fix}")
    if len(shown) < len(findings):
        codes = dict.fromkeys(
            finding.code for finding in findings if finding not in shown
        )
        hidden = counted(len(findings) - len(shown), "other finding")
        output.line(f"# {source}: {hidden}, see --json: {some(list(codes))}")
    output.line(f"# {source}: {_counts(findings)}")


def _most_severe(findings: Sequence[Finding]) -> list[Finding]:
    ranked = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return ranked[:_MAX_SHOWN]


def _lines(finding: Finding) -> str:
    """Return the line that was found, and the numbers of others with the same."""
    text = finding.text.strip()
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    others = [str(line) for line in finding.lines[1:]]
    if not others:
        return text
    noun = "line" if len(others) == 1 else "lines"
    return f"{text}  (also {noun} {some(others)})".strip()


def _counts(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    texts = [
        counted(counts[severity], severity)
        for severity in SEVERITIES
        if counts[severity]
    ]
    return ", ".join(texts) or "nothing to report"
