"""How many requests were held, and when."""

from __future__ import annotations

_SAMPLES = 1000
_SECONDS = 0.1


class Timeline:
    """A figure in the course of time, in a thousand points at most: the longer it goes on, the
    further they are apart."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []
        """Seconds since the epoch, and the figure from then on."""
        self._step = _SECONDS
        self._set_back = 0.0

    def add(self, now: float, value: int) -> None:
        """The figure is *value* from *now* on."""
        now += self._set_back
        if self.points and now < self.points[-1][0]:
            # The clock was set back. From here on time goes on from where it was.
            self._set_back += self.points[-1][0] - now
            now = self.points[-1][0]
        self._append(now, value)

    def _append(self, now: float, value: int) -> None:
        if self.points and now - self.points[-1][0] < self._step:
            # Of figures close together the last is what stays.
            self.points[-1] = (self.points[-1][0], value)
            return
        self.points.append((now, value))
        if len(self.points) > _SAMPLES:
            points, self.points = self.points, []
            self._step = 2 * (now - points[0][0]) / _SAMPLES
            for point in points:
                self._append(*point)
