"""What the owner of a robots.txt would want to know about it, line by line. No Scrapy here.

>>> from scrapy_rep.inspection.lint import lint
>>> for finding in lint(b"User-agent: *\\nDissallow: /x\\nDisallow: private\\n"):
...     print(finding.line, finding.code, finding.message)
2 typo "Dissallow" is read as disallow here; other crawlers may ignore the line
3 never-matches can never match: paths start with /
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.inspection.explanation import Outline
from scrapy_rep.inspection.lint.checks import effect_findings, group_findings, line_findings, rows
from scrapy_rep.inspection.lint.finding import Finding, file_findings
from scrapy_rep.protocol.syntax import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Finding", "lint", "rows"]


def lint(
    body: bytes,
    *,
    robots_url: str | None = None,
    complete: bool = True,
    also: Sequence[Callable[[bytes, Outline], Iterable[Finding]]] = (),
) -> list[Finding]:
    """Return what there is to say about *body*, in the order of the lines.

    :param body: any bytes at all; the whole file, or as much of it as was fetched
    :param robots_url: where it is from, to tell which sitemaps are on its own host
    :param complete: whether *body* is all of the file
    :param also: further checks, of the part of the file that counts
    """
    kept = cut(body)
    outline = Outline.of(kept)
    found = [
        *file_findings(body, kept, outline, complete=complete),
        *line_findings(kept, outline),
        *group_findings(outline),
        *effect_findings(kept, outline, robots_url),
        *(finding for check in also for finding in check(kept, outline)),
    ]
    texts = [row.decode("utf-8", "backslashreplace") for row in rows(kept)]
    return [
        one if one.line is None or one.line > len(texts) else one._replace(text=texts[one.line - 1])
        for one in sorted(found, key=lambda one: one.line or 0)
    ]
