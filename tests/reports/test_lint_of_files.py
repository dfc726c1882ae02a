"""What site owners were reported to have got wrong without noticing, and which finding says so. To add
one, write a line: project and number of the report; a robots.txt, as small as shows it (not the
report's own); a line of it, and the code of the finding there."""

from __future__ import annotations

from scrapy_rep.inspection.lint import lint

ALL = "user-agent: *\n"
DELAY = "user-agent: a\ncrawl-delay: 9\n"
FILES: list[tuple[str, str, int, str]] = [
    # Crawlers that share rules by accident
    ("ropensci robotstxt 48", f"{DELAY}# b\nuser-agent: b\ndisallow: /\n", 4, "joined-agents"),
    ("ropensci robotstxt 55", f"{DELAY}\n{ALL}disallow: /x\n", 4, "joined-agents"),
    ("otwarchive 4411", f"{ALL}disallow: /x\n\n{DELAY}\nuser-agent: b\ndisallow: /\n", 7, "joined-agents"),
    ("Meziantou.Framework 2621", f"{DELAY}user-agent: b\ndisallow: /\n", 3, "joined-agents"),
    ("COUNTER-Robots 27", f"user-agent: a\n\n{ALL}disallow: /x\n", 3, "joined-agents"),
    ("Norconex crawler 457", f"{DELAY}{ALL}disallow: /x\n", 3, "joined-agents"),
    # Lines that do nothing
    ("next.js 47224", f"{ALL}disallow: /x,/y\n", 2, "rules-joined"),
    ("reppy 47", f"crawl-delay: 9\n{ALL}disallow: /x\n", 1, "delay-before-group"),
]  # fmt: skip


def test_what_lint_says_of_such_files() -> None:
    missing = []
    for reported, text, line, code in FILES:
        findings = [(item.line or 0, item.code) for item in lint(text.encode())]
        if (line, code) not in findings:
            missing.append((reported, findings))
    assert missing == []
