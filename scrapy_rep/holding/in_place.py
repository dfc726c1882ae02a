"""Requests that are held in the waiting room, from where they can go on at once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request

    from scrapy_rep.engine.scheduler_door import SchedulerDoor
    from scrapy_rep.holding.held_origin import HeldOrigin
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.waiting_room import Place


class InPlace:
    """Knows who may stay, and sends the others away."""

    def __init__(self, origins: Origins, door: SchedulerDoor) -> None:
        self._flights = origins.flights
        self._policy = origins.policy
        self._room = origins.waiting_room
        self._door = door
        self._sent_away: WeakSet[Request] = WeakSet()

    def may_hold(self, place: Place) -> bool:
        """Whether the request in *place* may be held there: no direct download, and an answer may
        come soon."""
        flight = self._flights.get(place.origin)
        soon = flight is not None and flight.left_of(self._policy.slow) > 0
        return soon and place.request in self._door

    def is_slow(self, held_origin: HeldOrigin) -> None:
        """Its first answer is slow."""
        held_origin.tell_slow()
        self.send_away(held_origin)

    def send_away(self, held_origin: HeldOrigin) -> None:
        """Have requests leave the room: they will be held for longer."""
        self._sent_away.update(place.request for place in held_origin.places if place.waits)
        for place in held_origin.places:
            place.call(go_on=False)
        held_origin.places.clear()

    def was_sent_away(self, request: Request) -> bool:
        """Whether *request* has just left the room. Only the first call returns True."""
        if request not in self._sent_away:
            return False
        self._sent_away.discard(request)
        return True

    def end(self, held_origins: Iterable[HeldOrigin]) -> None:
        """Empty the room: the spider closes."""
        self._room.end()
        for held_origin in held_origins:
            self.send_away(held_origin)
