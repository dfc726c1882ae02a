"""Random whole crawls on loopback, compared with what must be true (`tests.fuzz.judge`).

python -m tests.fuzz.crawls --seeds 0-1000 --workers 8    eight worlds at a time
python -m tests.fuzz.crawls --seeds 17 --keep /tmp/17     leaves the logs there
"""

# Imported in each crawl's process as its main module: what takes long is imported where it is needed.
from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.judge import RunRecord
    from tests.fuzz.served import ServedWorld
    from tests.fuzz.worlds import World
    from tests.helpers.servers import Sites


@dataclass
class Verdict:
    world: World
    faults: list[str]
    seconds: float

    @property
    def kinds(self) -> list[str]:
        return sorted({fault.partition(":")[0] for fault in self.faults})

    def __str__(self) -> str:
        lines = [
            str(self.world),
            *(f"  ! {fault[:2000]}" for fault in self.faults[:12]),
        ]
        if len(self.faults) > 12:
            lines.append(f"  ! and {len(self.faults) - 12} more")
        lines.append(f"  again: python -m tests.fuzz.crawls --seeds {self.world.seed}")
        return "\n".join(lines)


def crawl_of(seed: int, sites: Sites, folder: Path) -> Verdict:
    """Run the world of *seed*: each of its runs in a process. What they leave is in *folder*."""
    from tests.fuzz.judge import Judge
    from tests.fuzz.served import ServedWorld
    from tests.fuzz.worlds import world_of

    began = time.monotonic()
    world = world_of(seed)
    served = ServedWorld(world, sites)
    runs = []
    for number in range(len(world.runs)):
        runs.append(run_of(world, served, number, folder))
        if not runs[-1].of("closed"):
            break
    faults = Judge(world, served, runs).faults()
    return Verdict(world, faults, time.monotonic() - began)


def run_of(world: World, served: ServedWorld, number: int, folder: Path) -> RunRecord:
    import json
    import os
    import signal

    from tests.fuzz.judge import RunRecord, held_rows
    from tests.helpers.process import REACTORS, ROOT, arguments_of, environment
    from tests.helpers.scrapy_process import ScrapyProcess

    events, log, plan = (
        folder / f"{number}.events",
        folder / f"{number}.log",
        folder / "plan.json",
    )
    events.touch()
    log.touch()
    plan.write_text(
        json.dumps({**world.as_json(), "roots": [one.root for one in served.origins]})
    )
    jobdir = folder / "jobdir"
    before = held_rows(jobdir)
    run = world.runs[number]
    cancels = (
        ""
        if world.cancels is None
        else f"{served.origins[world.cancels].root}/robots.txt"
    )
    variables = {
        "CRAWL_EVENTS": str(events),
        "CRAWL_LIMIT": f"{world.limit:g}",
        "CRAWL_CANCELS": cancels,
        "CRAWL_LAG": f"{world.lag:g}",
        "CRAWL_CLOSES": f"{run.stop_at}" if run.stop == "close" and run.stop_at else "",
    }
    process = ScrapyProcess(
        arguments_of(
            *("runspider", str(ROOT / "tests/fuzz/world_spider.py")),
            *("-a", f"plan={plan}", "-a", f"run={number}"),
            settings={
                **settings_of(world, folder),
                **run.settings,
                **REACTORS[world.reactor],
            },
        ),
        cwd=folder,
        variables=environment(**variables),
        output=log,
    )

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in events.read_text().split("\n")[:-1]]

    if run.stop_at is not None and run.stop == "sigint":
        while not events.stat().st_size and process.exitcode is None:
            time.sleep(0.02)
        process.join(run.stop_at)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGINT)
    try:
        status: int | None = process.wait(world.limit + 60)
    except TimeoutError:
        process.kill()
        process.join()
        status = None
    stopped = run.stop_at is not None
    text = log.read_text(errors="replace")
    return RunRecord(number, lines(), status, text, stopped, before, held_rows(jobdir))


def settings_of(world: World, folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "ADDONS": {"scrapy_rep.Addon": 300},
        "EXTENSIONS": {"tests.fuzz.world_spider.WorldRecorder": 0},
        "USER_AGENT": "testbot/1.0",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "RETRY_ENABLED": False,
        "DOWNLOAD_DELAY_JITTER": 0,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "DOWNLOAD_TIMEOUT": 10,
        **world.settings,
    }
    settings["DOWNLOADER_MIDDLEWARES"] = middlewares = {}
    if world.cancels is not None:
        middlewares["tests.fuzz.world_spider.Canceller"] = 450
    if world.lag:
        middlewares["tests.fuzz.world_spider.Lag"] = 50
    if world.jobdir:
        settings["JOBDIR"] = str(folder / "jobdir")
    if world.shared_cache:
        settings["REP_CACHE_STORAGE"] = "scrapy_rep.storages.SqliteStorage"
        settings["REP_CACHE_PATH"] = str(folder / "robots.sqlite")
    return settings


def verdicts(
    seeds: Iterable[int], workers: int, keep: Path | None = None
) -> Iterator[Verdict]:
    """Run the worlds of *seeds*, so many at a time; yield as they end."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from tests.helpers.servers import LoopThread, Sites

    thread = LoopThread()

    def one(seed: int) -> Verdict:
        sites = Sites(thread)
        try:
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                folder = Path(tempfile.mkdtemp(prefix=f"{seed}-", dir=keep))
                return crawl_of(seed, sites, folder)
            with tempfile.TemporaryDirectory() as name:
                return crawl_of(seed, sites, Path(name))
        finally:
            sites.close()

    try:
        with ThreadPoolExecutor(workers) as pool:
            for done in as_completed([pool.submit(one, seed) for seed in seeds]):
                yield done.result()
    finally:
        thread.close()


def main(arguments: list[str]) -> int:
    from collections import defaultdict

    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.crawls", description=__doc__
    )
    parser.add_argument("--seeds", default="0-99", help="such as 17, 3,5,9 or 0-99")
    parser.add_argument("--workers", type=int, default=8, help="worlds at a time")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    parser.add_argument(
        "--show", action="store_true", help="print the worlds, and run none"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print the worlds without faults, too"
    )
    parser.add_argument("--times", type=int, default=1, help="how often to run each")
    options = parser.parse_args(arguments)
    seeds: list[int] = []
    for part in options.seeds.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    if options.show:
        from tests.fuzz.worlds import world_of

        print(*map(world_of, seeds), sep="\n")
        return 0
    kinds: defaultdict[str, list[int]] = defaultdict(list)
    seconds, ended = 0.0, 0
    for verdict in verdicts(seeds * options.times, options.workers, options.keep):
        ended += 1
        seconds += verdict.seconds
        for kind in verdict.kinds:
            kinds[kind].append(verdict.world.seed)
        if verdict.faults:
            print(verdict, flush=True)
        elif options.verbose:
            print(f"{verdict.world}\n  right, in {verdict.seconds:.1f} s", flush=True)
    print(f"{ended} worlds, {seconds / max(1, ended):.1f} s each")
    for kind, where in sorted(kinds.items()):
        print(f"{kind}: {len(where)} worlds: {sorted(where)}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
