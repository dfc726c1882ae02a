"""``noai`` and ``noimageai`` in ``X-Robots-Tag`` and metas (REP.md section 11), DeviantArt's proposal of
November 2022, and ``noml``, that of noml.info of October 2023. There is no draft; ``noai`` and ``noml``
speak for the images too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.protocol.usage.statements import IMAGES, NO, TRAINING, Statement

if TYPE_CHECKING:
    from scrapy_rep.protocol.page import PageRules

RULES = {"noai": (TRAINING, IMAGES), "noimageai": (IMAGES,), "noml": (TRAINING, IMAGES)}


def page_statements(rules: PageRules) -> list[Statement]:
    """Return what the rules of a page say."""
    return [
        Statement(rule.source, rule.line, rule.name, dict.fromkeys(RULES[rule.name], NO))
        for rule in rules.rules
        if rule.name in RULES
    ]
