"""Policy tokens (REP.md section 11): names that no crawler sends, in ordinary groups.
``Google-Extended`` (Google, September 2023), ``Applebot-Extended`` (Apple, June 2024), ``CCBot``, …
No draft: each is described by who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.protocol.tokens import GLOBAL
from scrapy_rep.protocol.usage.statements import MAX_TEXT, NO, YES, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.protocol.matching import Decision


def token_statement(token: str, decision: Decision, purposes: Iterable[str]) -> Statement | None:
    """Return what robots.txt says to *token*; None for nothing.

    A line that forbids says no. Yes takes a line of a group that names the token: to be let in as
    one of all crawlers is no statement about use.
    """
    rule = decision.rule
    if rule is None or (decision.allowed and decision.agent == GLOBAL):
        return None
    says = dict.fromkeys(purposes, YES if decision.allowed else NO)
    return Statement(f"robots.txt for {token}", rule.line, str(rule)[:MAX_TEXT].rstrip(), says)
