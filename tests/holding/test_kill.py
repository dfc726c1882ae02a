"""With JOBDIR, what is held outlives `kill -9` at any moment: the next run goes on with every
request that was ever held, at least once each (REP.md section 4; DESIGN.md, "What is held is on
disk the moment it is held").

Only a process can be killed. A kill while a spider closes comes after a moment that chance picks: there is
no event that could be waited for.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import RULES, after, once, reset, silence
from tests.helpers.held import NEVER, silent_until_open
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.process


PAGES, SOME = 40, 15
# A site that is silent is asked again soon, so that the runs get on.
SETTINGS = {"REP_DOWNLOAD_TIMEOUT": 0.5}


class Town:
    """Sites whose robots.txt are down, each in another way, until they are up."""

    page_seconds = 0.02

    def __init__(self, sites: Sites) -> None:
        self.sites: list[Site] = [sites.add() for _ in range(4)]

    def down(self) -> None:
        for site, robots in zip(
            self.sites, (503, silence(), 503, reset()), strict=True
        ):
            site.set("/robots.txt", robots)

    def up(self) -> None:
        for site in self.sites:
            site.set("/robots.txt", RULES)

    def pages(self, count: int, name: str = "page") -> list[str]:
        urls = []
        for number in range(count):
            site = self.sites[number % len(self.sites)]
            path = f"/{name}-{number}"
            site.set(path, after(self.page_seconds, f"this is {path}"))
            urls.append(site.url(path))
        return urls

    @property
    def asked(self) -> Counter[str]:
        return Counter(
            site.url(target) for site in self.sites for target in site.pages_asked
        )


def mend_queues(jobdir: Path) -> None:
    """Take away what a kill leaves of a queue of Scrapy's whose last request was taken out: an index alone,
    or half written, out of which the next run would get exceptions. And half a list of the queues."""
    active = jobdir / "requests.queue" / "active.json"
    try:
        json.loads(active.read_text())
    except ValueError:
        shutil.rmtree(active.parent)
    except FileNotFoundError:
        pass
    for index in list(jobdir.glob("requests.queue/**/info.json")):
        if not index.stat().st_size or not (index.parent / "q00000").exists():
            shutil.rmtree(index.parent)


class Chain:
    """Runs with one JOBDIR, each ended at another moment, and a last one that may finish.

    :param linked: all requests come from a callback, in the first run. Scrapy has them in a queue of another
        kind, whose file is in a state after a kill in which Scrapy can't add to it. Otherwise each run
        that is to be ended adds new ones
    """

    def __init__(
        self,
        sites: Sites,
        folder: Path,
        linked: bool,
        reactor: str = "asyncio",
        **settings: Any,
    ) -> None:
        folder.mkdir()
        self.town = Town(sites)
        self.folder, self.linked, self.reactor = folder, linked, reactor
        self.settings = {**SETTINGS, **settings, "JOBDIR": folder / "job"}
        self.chance = random.Random(f"9309 {linked}")
        self.runs: list[Crawl] = []

    def start(self, ends: str = "", new_pages: int = 0) -> Crawl:
        """A run that adds *new_pages* to what it finds."""
        urls = self.town.pages(new_pages, f"run{len(self.runs)}")
        mend_queues(self.folder / "job")
        linked = {"linked": "yes"} if self.linked else {}
        run = Crawl(
            self.folder, urls, self.settings, reactor=self.reactor, ends=ends, **linked
        )
        self.runs.append(run)
        return run

    def hold_and_release(self, ends: str, new_pages: int | None = None) -> Crawl:
        if new_pages is None:
            new_pages = PAGES if not self.linked else 0 if self.runs else 4 * PAGES
        self.town.down()
        run = self.start(ends, new_pages)
        run.wait_for("held", new_pages)
        run.wait_for("refused", 4)
        self.town.up()
        return run

    def kill_at(self, *kinds: str) -> None:
        kind = self.chance.choice(kinds)
        most = {"held": PAGES - 1, "refused": 4, "resolved": 4}.get(kind, SOME)
        self.hold_and_release(f"SIGKILL {kind} {self.chance.randint(1, most)}").join()

    def kill_while_closing(self) -> None:
        run = self.hold_and_release("SIGINT released 1")
        run.wait_until(lambda: "Closing spider" in run.log, "Scrapy to hear it")
        time.sleep(self.chance.uniform(0, 0.1))
        run.kill()

    def kill_again_and_again(self) -> None:
        rounds: list[Callable[[], None]] = [
            partial(self.kill_at, "resolved", "released"),
            partial(self.kill_at, "released" if self.linked else "refused"),
            partial(self.kill_at, "reached", "downloaded", "left"),
            self.kill_while_closing,
        ]
        self.chance.shuffle(rounds)
        self.go(partial(self.kill_at, "refused" if self.linked else "held"), *rounds)

    def stop_at(self, kind: str, count: int, new_pages: int | None = None) -> None:
        run = self.hold_and_release(f"SIGINT {kind} {count}", new_pages).join()
        assert run.reason == "shutdown"

    def go(self, *rounds: Callable[[], None]) -> None:
        """After these, another run fetches all that is left: nothing is missing."""
        try:
            for one in rounds:
                one()
            self.town.up()
            last = self.start().join()
        finally:
            for run in self.runs:
                run.close()
        assert last.reason == "finished", last.log
        assert last.stats.get("rep/held/now") in (None, "0")
        held = {url for run in self.runs for url in run.urls("held")}
        assert held
        assert held - set(self.town.asked) == set(), "never asked for"
        downloaded = {url for run in self.runs for url in run.urls("downloaded")}
        assert held - downloaded == set(), "asked for, but never downloaded"
        for run in self.runs:
            run.assert_clean()


def test_nothing_held_is_lost_by_kills_at_any_moment(
    sites: Sites, tmp_path: Path
) -> None:
    """10 kills, two crawls at a time, one without a reactor; fewer if runs are over before."""
    broad, scrapys = (
        "scrapy_rep.BroadPriorityQueue",
        "scrapy.pqueues.DownloaderAwarePriorityQueue",
    )
    chains = [
        Chain(sites, tmp_path / "broad", False, "none", SCHEDULER_PRIORITY_QUEUE=broad),
        Chain(sites, tmp_path / "scrapys", True, SCHEDULER_PRIORITY_QUEUE=scrapys),
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Chain.kill_again_and_again, chains))
    for chain in chains:
        assert any(run.reason is None for run in chain.runs)


@pytest.mark.scrapy_api
def test_a_graceful_stop_after_a_kill_loses_nothing(
    sites: Sites, tmp_path: Path
) -> None:
    chain = Chain(sites, tmp_path / "runs", linked=True)
    # However many of the released ones were done before the kill: at least 20 of 40 are left.
    kill = partial(chain.hold_and_release, "SIGKILL released 20")
    chain.go(lambda: kill().join() and None, lambda: chain.stop_at("released", 15))


def test_after_a_graceful_stop_each_held_page_is_fetched_exactly_once(
    sites: Sites, tmp_path: Path
) -> None:
    """Just before some are released, then, and when pages arrive."""
    for moment, count in (("resolved", 2), ("released", 15), ("page", 20)):
        chain = Chain(sites, tmp_path / moment, linked=moment == "released")
        chain.go(partial(chain.stop_at, moment, count, PAGES))
        assert set(chain.town.asked.values()) == {1}
        assert {page.detail for run in chain.runs for page in run.of("page")} == {
            PAGE_AS_EVER
        }


def queued_in(queue: Path) -> bool:
    """Whether Scrapy has requests on disk. Its list of queues alone is no request."""
    files = [path for path in queue.rglob("*") if path.is_file()]
    return any(path.name != "active.json" for path in files)


@pytest.mark.parametrize("kill", [True, False])
def test_after_a_kill_the_next_run_tells_of_the_broken_queue(
    sites: Sites, crawl: Callable[..., Crawl], tmp_path: Path, kill: bool
) -> None:
    """Of Scrapy's own; not after an orderly stop."""
    gate = silent_until_open("answered")
    # More than may wait at the gate for the first answer, which comes when all are scheduled.
    paths = [f"/{number}" for number in range(20)]
    runs: list[Crawl] = []
    robots = once(lambda: runs and len(runs[0].of("scheduled")) == len(paths), "")
    site = sites.add(robots=robots, pages=dict.fromkeys(paths, gate))
    urls = [site.url(path) for path in paths]
    settings = {
        "JOBDIR": tmp_path / "job",
        "CONCURRENT_REQUESTS": 1,
        "_REP_HOLD_GRACE": NEVER,
        # On a slow machine the answer is late, and then the gate takes as many as may be held.
        "REP_HOLD_MAX_REQUESTS": 1,
    }
    run = crawl(urls, settings)
    runs.append(run)
    queue = tmp_path / "job" / "requests.queue"
    run.wait_until(
        lambda: site.pages_asked and queued_in(queue),
        "a page to hang while others are in Scrapy's queue",
    )
    if kill:
        run.kill()
        gate.open()
    else:
        run.interrupt()
        run.wait_until(lambda: "Closing spider" in run.log, "Scrapy to hear it")
        gate.open()
        assert run.join().reason == "shutdown"
        assert queued_in(queue)
    after = crawl(urls if kill else [], settings).join()
    assert after.reason == "finished"
    told = [one.log.count("was killed. Scrapy saves its queue") for one in (run, after)]
    assert told == [0, kill]


@pytest.mark.scrapy_api
def test_a_second_ctrl_c_loses_nothing(sites: Sites, tmp_path: Path) -> None:
    chain = Chain(sites, tmp_path / "runs", linked=False)

    def stop_twice() -> None:
        chain.town.page_seconds = NEVER  # so that the first Ctrl-C can't end the run
        run = chain.hold_and_release("", PAGES)
        run.wait_for("reached")
        run.interrupt()
        run.wait_until(lambda: "Closing spider" in run.log, "Scrapy to hear it")
        run.interrupt()
        assert run.join().reason is None, "it was no unclean end"
        chain.town.page_seconds = 0
        chain.town.pages(PAGES, "run0")

    chain.go(stop_twice)
