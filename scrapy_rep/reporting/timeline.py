"""How many requests were held, and when."""

from __future__ import annotations

from typing import NamedTuple

_SAMPLES = 1000
_SECONDS = 0.1


class _Sample(NamedTuple):
    """A short time: when it began, the highest figure in it and the last."""

    began: float
    highest: int
    last: int


class Timeline:
    """A value over time, in a thousand samples at most, which get wider as it goes on. Peaks stay."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._step = _SECONDS
        self._set_back = 0.0

    @property
    def points(self) -> list[tuple[float, int]]:
        """Seconds since the epoch, and the figure from then on."""
        found: list[tuple[float, int]] = []
        for one in self._samples:
            found.append((one.began, one.highest))
            if one.last != one.highest:
                found.append((one.began, one.last))
        return found

    def add(self, now: float, value: int) -> None:
        """The figure is *value* from *now* on."""
        now += self._set_back
        if self._samples and now < self._samples[-1].began:
            # The clock was set back. From here on time goes on from where it was.
            self._set_back += self._samples[-1].began - now
            now = self._samples[-1].began
        self._append(_Sample(now, value, value))

    def _append(self, new: _Sample) -> None:
        samples = self._samples
        if samples and new.began - samples[-1].began < self._step:
            before = samples[-1]
            samples[-1] = _Sample(before.began, max(before.highest, new.highest), new.last)
            return
        samples.append(new)
        if len(samples) > _SAMPLES:
            self._samples = []
            self._step = 2 * (new.began - samples[0].began) / _SAMPLES
            for one in samples:
                self._append(one)
