"""``scrapy robots --held JOBDIR``: what a crawl holds, running or stopped. Changes nothing there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import UsageError

from scrapy_rep.commands.ending import CommandError, Status
from scrapy_rep.commands.inputs import project_storage
from scrapy_rep.commands.output import DIM, Output
from scrapy_rep.engine.text import clean, counted, duration, iso, text_of
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import held_fields

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from scrapy_rep.commands.robots import RobotsCommand
    from scrapy_rep.storages.base import Entry


class HeldOrigin(NamedTuple):
    """What a crawl holds of one origin."""

    origin: str
    requests: int
    seconds: float
    """Since the first of them was held, as long as crawls with this JOBDIR ran."""


# What a newer or damaged file has in place of numbers is left out.
_HELD = """
SELECT origin, count(*), max(max(since), (SELECT coalesce(max(ran), 0) FROM clock)) - min(since)
FROM held WHERE typeof(origin) = 'text' AND typeof(since) = 'real' GROUP BY origin ORDER BY 2 DESC
"""


def held_in(path: Path) -> list[HeldOrigin]:
    """Return what the hold at *path* has, most requests first. Raises ``sqlite3.Error``."""
    # A file that a crawl has open, or that it was killed with, has a WAL beside it. Without one,
    # nothing may be created: the next run would take it for the trace of a kill.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as db:
        return [HeldOrigin(*row) for row in db.execute(_HELD)]


def run(
    command: RobotsCommand, arguments: Sequence[str], options: Namespace, output: Output
) -> None:
    """List the origins."""
    if arguments:
        raise UsageError("--held takes a JOBDIR and nothing else", print_help=False)
    path = Path(options.held, FILE_NAME)
    if not Path(options.held).is_dir():
        raise CommandError(f"{clean(options.held)!r} is not a directory")
    try:
        held = held_in(path) if path.exists() else []
    except (sqlite3.Error, OSError) as error:
        raise CommandError(f"{path} can't be read: {text_of(error)}", Status.UNREACHABLE) from None
    known = _known(command, held)
    for one in held:
        if options.json:
            output.json(held_fields(*one, known.get(one.origin)))
        else:
            count = counted(one.requests, "request")
            why = output.paint(_why(known.get(one.origin)), DIM)
            output.line(f"{count}  {clean(one.origin)}  held for {duration(one.seconds)}  {why}")
    if not options.json:
        requests = counted(sum(one.requests for one in held), "request")
        output.note(f"{requests} of {counted(len(held), 'origin')} held")


def _known(command: RobotsCommand, held: Sequence[HeldOrigin]) -> dict[str, Entry]:
    """Return what the project's cache, if there is one, knows of these origins."""
    with project_storage(command.settings) as storage:
        found = storage.load_many([one.origin for one in held]) if storage and held else {}
    return {origin: one for origin, one in found.items() if not isinstance(one, Exception)}


def _why(entry: Entry | None) -> str:
    if entry is None:
        return "reason unknown: REP_CACHE_STORAGE has no entry for it"
    if entry.unreachable_since is None:
        return "robots.txt is reachable again: released when the crawl goes on"
    since = iso(entry.unreachable_since)
    when = f"not before {iso(entry.next_attempt_at)}"
    return f"robots.txt unreachable since {since} ({clean(str(entry.error))}), next attempt {when}"
