"""What ``scrapy robots --lint`` prints of the findings about a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scrapy_rep.inspection.findings import SEVERITIES, first_few
from scrapy_rep.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_rep.commands.output import Output
    from scrapy_rep.inspection.findings import Finding

# People are shown only this many findings about a file, the most severe ones. With
# three lines for each finding, and two lines of counts, a file takes less than 40
# lines.
_MAX_SHOWN = 12

# Characters: so much is shown of the line that a finding is about.
_MAX_SHOWN_TEXT = 100


def print_findings(output: Output, source: str, findings: Sequence[Finding]) -> None:
    """Print the findings of lint about a file. Programs get all findings. People get
    the most severe ones, how many others there are, and how many findings there are of
    each severity.

    :param source: the name of the file, or the URL of the robots.txt
    """
    shown = _most_severe(findings)
    for finding in findings:
        if output.is_for_programs:
            _print_data(output, source, finding)
        elif finding in shown:
            _print_finding(output, source, finding)
    if len(shown) < len(findings):
        # The codes of the findings that aren't shown, each once, in order.
        hidden_codes: dict[str, None] = {}
        for finding in findings:
            if finding not in shown:
                hidden_codes[finding.code] = None
        others = counted(len(findings) - len(shown), "other finding")
        codes = first_few(list(hidden_codes))
        output.line(f"# {source}: {others}, see --json: {codes}")
    total = _count_in_words(findings)
    output.line(f"# {source}: {total}")


def _print_data(output: Output, source: str, finding: Finding) -> None:
    """Print a finding for programs."""
    output.put(
        {
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
    )


def _print_finding(output: Output, source: str, finding: Finding) -> None:
    """Print a finding for people: where and what, the line itself, and what to do about
    it."""
    place = source
    if finding.line:
        place += f":{finding.line}"
    severity = finding.severity
    message = f"{finding.message} [{finding.code}]"
    output.line(f"{place}: {severity}: {message}", severity=severity)
    lines = _quoted_lines(finding)
    if lines:
        output.line(f"    {lines}")
    output.line(f"    fix: {finding.fix}")


def _most_severe(findings: Sequence[Finding]) -> list[Finding]:
    """Return those of *findings* that people are shown."""
    ranked = []
    for severity in SEVERITIES:  # the gravest first
        ranked += [finding for finding in findings if finding.severity == severity]
    return ranked[:_MAX_SHOWN]


def _quoted_lines(finding: Finding) -> str:
    """Return the text of the first line that a finding is about, and the numbers of the
    others; "" if it is about the whole file."""
    text = finding.text.strip()
    if len(text) > _MAX_SHOWN_TEXT:
        text = f"{text[:_MAX_SHOWN_TEXT]}…"
    other_lines = [str(line) for line in finding.lines[1:]]
    if other_lines:
        noun = "line" if len(other_lines) == 1 else "lines"
        numbers = first_few(other_lines)
        text += f"  (also {noun} {numbers})"
    return text.strip()


def _count_in_words(findings: Sequence[Finding]) -> str:
    """Return how many findings there are of each severity, in words."""
    count_by_severity = Counter(finding.severity for finding in findings)
    parts = []
    for severity in SEVERITIES:
        count = count_by_severity[severity]
        if count:
            parts.append(counted(count, severity))
    return ", ".join(parts) or "nothing to report"
