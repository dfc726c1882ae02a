"""Sites that are not crawled because they ask for a longer delay than the project keeps:
``REP_CRAWL_DELAY`` with ``"skip"`` (REP.md section 12)."""

from __future__ import annotations

from scrapy_rep.protocol import Decision, RobotsTxt, Rule
from scrapy_rep.protocol.syntax import readable

# Characters of a line's value that are shown.
_SHOWN = 80


def too_slow(
    robots: RobotsTxt,
    chain: tuple[str, ...],
    obey_global: bool,
    max_delay: float | None,
) -> Decision | None:
    """Return the decision against all URLs of an origin that asks for more seconds between two requests
    than *max_delay*; None if it doesn't, or if that is None. Its rule is the line that asks."""
    if max_delay is None:
        return None
    slowest = robots.pace(chain, obey_global).slowest
    if slowest is None or slowest.seconds <= max_delay:
        return None
    value = readable(slowest.value)[:_SHOWN]
    text = f"{slowest.field}: {value}, more than REP_CRAWL_DELAY allows"
    token, _ = robots.rules(chain, obey_global)
    return Decision(False, Rule(slowest.line, "", False, text), token)
