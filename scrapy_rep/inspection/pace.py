"""Sites that are not crawled because they ask for a longer delay than the project
keeps: ``REP_CRAWL_DELAY`` with ``"skip"`` (REP.md section 12)."""

from __future__ import annotations

from scrapy_rep.protocol import Decision, RobotsTxt, Rule
from scrapy_rep.protocol.syntax import readable

# The most characters that are shown of the value in the line that asks for the delay.
_MAX_SHOWN_VALUE = 80


def delay_refusal(
    robots: RobotsTxt,
    chain: tuple[str, ...],
    obey_global: bool,
    max_delay: float | None,
) -> Decision | None:
    """Return the decision against all URLs of an origin whose robots.txt asks for too
    long a delay between two requests; None if it doesn't ask for that. The rule of the
    decision stands for the line that asks, and has no pattern.

    :param chain: the crawler's tokens, most specific first
    :param obey_global: whether the crawler obeys the ``*`` group if no group names it
    :param max_delay: seconds; None: no delay is too long
    """
    if max_delay is None:
        return None
    slowest = robots.pace(chain, obey_global).slowest
    if slowest is None or slowest.seconds <= max_delay:
        return None
    value = readable(slowest.value)[:_MAX_SHOWN_VALUE]
    text = f"{slowest.field}: {value}, more than REP_CRAWL_DELAY allows"
    token, _ = robots.rules(chain, obey_global)
    return Decision(False, Rule(slowest.line, "", False, text), token)
