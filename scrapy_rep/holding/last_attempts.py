"""The last attempt at a robots.txt, when the time of held requests is over (REP.md section 4): nobody
waits for an attempt that will not come. Pure: no I/O, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_rep.settings import RepSettings
    from scrapy_rep.storages.entry import Entry

# An attempt is the last one if it was made within this share of REP_DEFER_MAX_WAIT before the end.
_LATE_SHARE = 4

# Requests come and go: after one last attempt, the next one waits for this share of the pause.
_PAUSE_SHARE = 2

# Origins.
_MOST = 10_000


class LastAttempts:
    """Decides on attempts that are made before the origin's clock says so."""

    def __init__(self, settings: RepSettings) -> None:
        self.late = min(settings.retry_delay, settings.defer_max_wait / _LATE_SHARE)
        """Seconds: an attempt in the last of them was the last one."""
        self.seconds = min(settings.download_timeout, settings.defer_max_wait)
        """For how long requests whose time is over wait for an answer."""
        self._made: dict[str, int] = {}
        """Origins, and which attempt in a row of failures was made so."""

    def is_due(self, entry: Entry | None, now: float) -> bool:
        """Whether to make one *now* (seconds since the epoch), when the time of a request is over."""
        if entry is None or entry.unreachable_since is None:
            return True
        least = self._pause(entry) or self.late
        return now >= max(entry.updated_at + least, _not_before(entry))

    def hopeless(self, entry: Entry, now: float) -> float:
        """Return for how many seconds from *now* on, after a failure, none will be made."""
        pause = entry.updated_at + self._pause(entry)
        return max(0.0, pause - now, _not_before(entry) - now)

    def made(self, origin: str, entry: Entry | None) -> None:
        """One is being made."""
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[origin] = entry.attempts + 1 if entry else 1

    def _pause(self, entry: Entry) -> float:
        """Return for how many seconds no other one may follow, if the latest attempt was one."""
        if self._made.get(entry.origin) != entry.attempts:
            return 0.0
        return max(0.0, entry.next_attempt_at - entry.updated_at) / _PAUSE_SHARE


def _not_before(entry: Entry) -> float:
    # Whatever a storage says, the origin's clock goes on.
    return min(entry.not_before, entry.next_attempt_at)
