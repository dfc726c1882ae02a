"""With JOBDIR, what is held outlives `kill -9` at any moment: the next run goes on with every
request that was ever held, at least once each (REP.md section 4; DESIGN.md, "What is held is on
disk the moment it is held")."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process import ONCE, REACTORS, Crawl
from tests.process.town import Town
from tests.servers import Sites

pytestmark = ONCE

SEED = 9309
CHAINS = 6
PAGES = 60

# A site that is silent is asked again soon, so that the runs get on.
SETTINGS = {"REP_DOWNLOAD_TIMEOUT": 0.5}


class Chain:
    """Runs with one JOBDIR, each killed at another moment, and a last one that may finish.

    Every run requests pages of its own beside what it finds. What the others have left in
    Scrapy's own queues is lost by a kill; what was held is not.
    """

    def __init__(self, sites: Sites, folder: Path, chance: random.Random, reactor: str) -> None:
        self.town = Town(sites)
        self.folder = folder
        self.chance = chance
        self.reactor = reactor
        self.runs: list[Crawl] = []
        self.held: set[str] = set()

    def start(self, pages: int = PAGES, ends: str = "") -> Crawl:
        urls = self.town.pages(pages, f"run{len(self.runs)}")
        settings = {**SETTINGS, "JOBDIR": self.folder / "job"}
        run = Crawl(self.folder, urls, settings, reactor=self.reactor, ends=ends)
        self.runs.append(run)
        return run

    def end(self, run: Crawl) -> None:
        run.kill()
        assert run.reason is None, "it was over before it was killed"
        self.held.update(run.urls("deferred"))

    # One round each

    def while_holding(self) -> None:
        self.town.down()
        count = self.chance.randrange(1, PAGES)
        if self.chance.random() < 0.5:
            run = self.start(ends=f"SIGKILL deferred {count}").join()
        else:
            run = self.start()
            run.wait_for("deferred", count)
        self.end(run)

    def while_retrying(self) -> None:
        self.town.down()
        run = self.start()
        run.wait_for("deferred", PAGES)
        time.sleep(self.chance.uniform(0, 0.4))
        self.end(run)

    def at_release(self) -> None:
        self.town.down()
        kind = self.chance.choice(["resolved", "released", "time"])
        count = self.chance.randrange(1, 1 + len(self.town.sites) if kind == "resolved" else PAGES)
        run = self.start(ends="" if kind == "time" else f"SIGKILL {kind} {count}")
        run.wait_for("deferred", PAGES)
        self.town.up()
        if kind == "time":
            run.wait_for("released")
            time.sleep(self.chance.uniform(0, 0.03))
        else:
            run.join()
        self.end(run)

    def while_downloading(self) -> None:
        self.town.down()
        count = self.chance.randrange(1, PAGES)
        kind = self.chance.choice(["asked", "reached", "downloaded", "left"])
        run = self.start(ends="" if kind == "asked" else f"SIGKILL {kind} {count}")
        run.wait_for("deferred", PAGES)
        before = self.town.asked.total()
        self.town.up()
        if kind == "asked":
            run.wait_until(lambda: self.town.asked.total() >= before + count, f"{count} pages")
        else:
            run.join()
        self.end(run)

    def all_rounds(self) -> None:
        rounds = [self.while_holding, self.while_retrying, self.at_release, self.while_downloading]
        self.chance.shuffle(rounds)
        for one in rounds:
            one()
        self.finish()

    def finish(self) -> None:
        self.town.up()
        run = self.start(pages=0).join()
        assert run.reason == "finished", run.log
        run.assert_clean()
        assert run.stats.get("rep/held") in (None, "0")

    def check(self) -> None:
        """Nothing is missing."""
        downloaded = {url for run in self.runs for url in run.urls("downloaded")}
        assert self.held
        assert self.held - set(self.town.asked) == set(), "never asked for"
        assert self.held - downloaded == set(), "asked for, but never downloaded"
        for run in self.runs:
            run.assert_clean()

    def close(self) -> None:
        for run in self.runs:
            run.close()


def run_chain(chain: Chain) -> None:
    try:
        chain.all_rounds()
    finally:
        chain.close()


def test_nothing_held_is_lost_by_kills_at_any_moment(sites: Sites, tmp_path: Path) -> None:
    """24 kills, two crawls at a time."""
    chains = [
        Chain(sites, tmp_path / str(number), random.Random(f"{SEED} {number}"), "asyncio")
        for number in range(CHAINS)
    ]
    for chain in chains:
        chain.folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run_chain, chains))
    for chain in chains:
        chain.check()


@pytest.mark.parametrize("reactor", [name for name in REACTORS if name != "asyncio"])
def test_on_every_reactor(sites: Sites, tmp_path: Path, reactor: str) -> None:
    chain = Chain(sites, tmp_path, random.Random(f"{SEED} {reactor}"), reactor)
    try:
        chain.while_retrying()
        chain.while_downloading()
        chain.finish()
    finally:
        chain.close()
    chain.check()
