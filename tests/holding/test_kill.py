"""With JOBDIR, what is held outlives `kill -9` at any moment: the next run goes on with every
request that was ever held, at least once each (REP.md section 4; DESIGN.md, "What is held is on
disk the moment it is held").

Only a process can be killed. Some rounds sleep for a moment that chance picks: what they kill has
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

from tests.helpers.behaviours import RULES, after, reset, silence
from tests.helpers.held import NEVER, silent_until_open
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.process


class Town:
    """Sites whose robots.txt are down, each in another way, until they are up."""

    DOWN = (503, silence(), 503, reset())

    def __init__(self, sites: Sites, *, page_seconds: float = 0.02) -> None:
        self.sites: list[Site] = [sites.add() for _ in self.DOWN]
        self.page_seconds = page_seconds
        self.down()

    def down(self) -> None:
        for site, behaviour in zip(self.sites, self.DOWN, strict=True):
            site.set("/robots.txt", behaviour)

    def up(self) -> None:
        for site in self.sites:
            site.set("/robots.txt", RULES)

    def pages(self, count: int, name: str = "page") -> list[str]:
        """The URLs of pages, an equal share at each site, by turns. The pages are made anew."""
        urls = []
        for number in range(count):
            site = self.sites[number % len(self.sites)]
            path = f"/{name}-{number}"
            site.set(path, after(self.page_seconds, f"this is {path}"))
            urls.append(site.url(path))
        return urls

    @property
    def asked(self) -> Counter[str]:
        """How often each page was asked for."""
        return Counter(site.url(target) for site in self.sites for target in site.pages_asked)


SEED = 9309
PAGES = 40
SOME = 15

# A site that is silent is asked again soon, so that the runs get on.
SETTINGS = {"REP_DOWNLOAD_TIMEOUT": 0.5}


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
    """Runs with one JOBDIR, each killed at another moment, and a last one that may finish."""

    kwargs: dict[str, str] = {}

    def __init__(
        self,
        sites: Sites,
        folder: Path,
        chance: random.Random,
        reactor: str = "asyncio",
        **settings: Any,
    ) -> None:
        self.town = Town(sites)
        self.folder = folder
        self.chance = chance
        self.reactor = reactor
        self.settings = {**SETTINGS, **settings, "JOBDIR": folder / "job"}
        self.runs: list[Crawl] = []
        self.held: set[str] = set()
        self.kills = 0

    def start(self, ends: str = "", *, new_pages: int = 0) -> Crawl:
        """A run that adds *new_pages* to what it finds."""
        urls = self.town.pages(new_pages, f"run{len(self.runs)}")
        mend_queues(self.folder / "job")
        run = Crawl(
            self.folder, urls, self.settings, reactor=self.reactor, ends=ends, **self.kwargs
        )
        self.runs.append(run)
        return run

    def new_pages(self) -> int:
        """None, sometimes, if enough are left of the run before."""
        if not self.runs or self.runs[-1].of("downloaded"):
            return PAGES
        return self.chance.choice([0, PAGES])

    def start_and_hold_all(self, ends: str = "", new_pages: int | None = None) -> Crawl:
        self.town.down()
        new_pages = self.new_pages() if new_pages is None else new_pages
        run = self.start(ends, new_pages=new_pages)
        run.wait_for("deferred", new_pages)
        run.wait_for("refused", 4)
        return run

    def end(self, run: Crawl) -> None:
        run.kill()
        # On a busy machine a run may be over before it is killed.
        self.kills += run.reason is None
        self.held.update(run.urls("deferred"))

    # One round each

    def while_holding(self) -> None:
        self.town.down()
        ends = f"SIGKILL deferred {self.chance.randrange(1, PAGES)}"
        self.end(self.start(ends, new_pages=PAGES).join())

    def while_retrying(self) -> None:
        run = self.start_and_hold_all()
        time.sleep(self.chance.uniform(0, 0.4))
        self.end(run)

    def at_release(self) -> None:
        kind = self.chance.choice(["resolved", "released"])
        most = len(self.town.sites) if kind == "resolved" else SOME
        self.at(kind, self.chance.randint(1, most))

    def while_downloading(self) -> None:
        kind = self.chance.choice(["reached", "downloaded", "left"])
        self.at(kind, self.chance.randint(1, SOME))

    def while_closing(self) -> None:
        """In the middle of what Ctrl-C does."""
        run = self.start_and_hold_all()
        self.town.up()
        run.wait_for("released")
        run.interrupt()
        time.sleep(self.chance.uniform(0, 0.1))
        self.end(run)

    def at(self, kind: str, count: int) -> None:
        run = self.start_and_hold_all(f"SIGKILL {kind} {count}")
        self.town.up()
        self.end(run.join())

    def stop_at(self, kind: str, count: int, *, new_pages: int = 0) -> None:
        """Not a kill: Ctrl-C."""
        run = self.start_and_hold_all(f"SIGINT {kind} {count}", new_pages)
        self.town.up()
        run.join()
        assert run.reason == "shutdown"
        self.held.update(run.urls("deferred"))

    def all_rounds(self) -> list[Callable[[], None]]:
        rounds = [
            *(self.while_holding, self.while_retrying, self.at_release),
            *(self.while_downloading, self.while_closing),
        ]
        self.chance.shuffle(rounds)
        return rounds

    def go(self, rounds: list[Callable[[], None]]) -> None:
        try:
            for one in rounds:
                one()
            self.town.up()
            run = self.start().join()
            assert run.reason == "finished", run.log
            assert run.stats.get("rep/held") in (None, "0")
        finally:
            for run in self.runs:
                run.close()

    def check(self) -> None:
        """Nothing is missing."""
        downloaded = {url for run in self.runs for url in run.urls("downloaded")}
        assert self.held
        assert self.held - set(self.town.asked) == set(), "never asked for"
        assert self.held - downloaded == set(), "asked for, but never downloaded"
        for run in self.runs:
            run.assert_clean()


class LinkedChain(Chain):
    """The requests come from a callback, in the first run: Scrapy has them in a queue of another kind, whose
    file is in a state after a kill in which Scrapy can't add to it."""

    kwargs = {"linked": "yes"}

    def new_pages(self) -> int:
        return 0 if self.runs else 4 * PAGES

    def all_rounds(self) -> list[Callable[[], None]]:
        rounds = [self.at_release, self.at_release, self.while_downloading, self.while_closing]
        self.chance.shuffle(rounds)
        return [self.while_retrying, *rounds]


KINDS = (
    (Chain, "scrapy_rep.BroadPriorityQueue", "none"),
    (LinkedChain, "scrapy.pqueues.DownloaderAwarePriorityQueue", "asyncio"),
)


def test_nothing_held_is_lost_by_kills_at_any_moment(sites: Sites, tmp_path: Path) -> None:
    """10 kills, two crawls at a time, one without a reactor; fewer if runs are over before."""
    chains = []
    for number, (kind, queue, reactor) in enumerate(KINDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        chance = random.Random(f"{SEED} {kind.__name__} {number}")
        chains.append(kind(sites, folder, chance, reactor, SCHEDULER_PRIORITY_QUEUE=queue))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda chain: chain.go(chain.all_rounds()), chains))
    for chain in chains:
        chain.check()
        assert chain.kills


@pytest.mark.scrapy_api
def test_a_graceful_stop_after_a_kill_loses_nothing(sites: Sites, tmp_path: Path) -> None:
    chain = LinkedChain(sites, tmp_path, random.Random(SEED))
    # However many of the released ones were done before the kill: at least 20 of 40 are left.
    chain.go([lambda: chain.at("released", 20), lambda: chain.stop_at("released", 15)])
    chain.check()


def test_after_a_graceful_stop_each_held_page_is_fetched_exactly_once(
    sites: Sites, tmp_path: Path
) -> None:
    """Just before some are released, then, and when pages arrive."""
    chains = []
    for kind, moment, count in (
        (Chain, "resolved", 2),
        (LinkedChain, "released", 15),
        (Chain, "page", 20),
    ):
        folder = tmp_path / moment
        folder.mkdir()
        chain = kind(sites, folder, random.Random(SEED))
        chains.append(chain)
        chain.go([partial(chain.stop_at, moment, count, new_pages=PAGES)])
    for chain in chains:
        chain.check()
        assert set(chain.town.asked.values()) == {1}
        assert {page.detail for run in chain.runs for page in run.of("page")} == {PAGE_AS_EVER}


@pytest.mark.scrapy_api
def test_a_second_ctrl_c_loses_nothing(
    sites: Sites, tmp_path: Path, crawl: Callable[..., Crawl]
) -> None:
    town = Town(sites, page_seconds=NEVER)  # so that the first Ctrl-C can't end the run
    settings = {**SETTINGS, "JOBDIR": tmp_path / "job"}
    first = crawl(town.pages(PAGES), settings)
    first.wait_for("deferred", PAGES)
    town.up()
    first.wait_for("reached")
    first.interrupt()
    first.wait_until(lambda: "Closing spider" in first.log, "Scrapy to hear it")
    first.interrupt()
    first.join()
    assert first.reason is None, "it was no unclean end"

    town.page_seconds = 0
    town.pages(PAGES)
    second = crawl((), settings).join()
    assert second.reason == "finished"
    assert set(first.urls("deferred")) - set(town.asked) == set()
    downloaded = first.urls("downloaded") + second.urls("downloaded")
    assert set(first.urls("deferred")) - set(downloaded) == set()
    second.assert_clean()


def warned_of_kill(run: Crawl) -> int:
    return run.log.count("was killed. Scrapy saves its queue")


@pytest.mark.parametrize("kill", [True, False])
def test_after_a_kill_the_next_run_tells_of_the_broken_queue(
    sites: Sites, crawl: Callable[..., Crawl], tmp_path: Path, kill: bool
) -> None:
    """Of Scrapy's own; not after an orderly stop."""
    gate = silent_until_open("answered")
    site = sites.add(robots="", pages={"/hang": gate})
    settings = {"JOBDIR": tmp_path / "job", "CONCURRENT_REQUESTS": 1, "REP_DEFER_GRACE": 5}
    # More than may wait at the gate for the first answer.
    urls = [site.url("/hang"), *(site.url(f"/{number}") for number in range(20))]
    run = crawl(urls, settings)
    run.wait_until(lambda: site.count("/hang"), "the first page")
    if kill:
        run.kill()
        gate.open()
    else:
        run.interrupt()
        run.wait_until(lambda: "Closing spider" in run.log, "Scrapy to hear it")
        gate.open()
        assert run.join().reason == "shutdown"
        queue = tmp_path / "job" / "requests.queue"
        assert any(one.is_file() and one.name != "active.json" for one in queue.rglob("*"))
    assert warned_of_kill(run) == 0
    after = crawl(urls if kill else [], settings).join()
    assert after.reason == "finished"
    assert warned_of_kill(after) == kill
