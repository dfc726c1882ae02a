"""A storage as the crawl uses it: made from REP_CACHE_STORAGE; in threads, one call at a time, with the
event loop free; what comes while it is busy goes into the next call, together; what it can't save
waits; while it fails, the crawl goes on without it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry, MemoryStorage, Storage, UnreadableEntry, client
from scrapy_rep.storages.client import Claim, StorageClient, open_storage
from tests.helpers.crawling import captured_log
from tests.helpers.held import a_while
from tests.helpers.log import lines
from tests.helpers.storing import NOW, A, B, missing, rules, users_class
from tests.storages.world import LEASE, Hanging, Watched, World, always, never

FULL = OSError(28, "No space left on device")
ALL = ("load", "save", "lease", "release", "purge")


class Batches(Watched):
    """Counts the calls that a storage with batches gets, and how many origins each has."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[str, int]] = []

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        self.sizes.append(("load", len(origins)))
        return super().load_many(origins)

    def save_many(self, entries: Sequence[Entry]) -> None:
        self.sizes.append(("save", len(entries)))
        super().save_many(entries)

    def lease_many(self, origins: Sequence[str], owner: str, seconds: float) -> set[str]:
        self.sizes.append(("lease", len(origins)))
        return super().lease_many(origins, owner, seconds)

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        self.sizes.append(("release", len(origins)))
        super().release_many(origins, owner)


def sizes(world: World) -> list[tuple[str, int]]:
    assert isinstance(world.storage, Batches)
    found, world.storage.sizes = world.storage.sizes, []
    return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(monkeypatch)
    world.storage = Batches()
    world.access = world.new()
    return world


# How it is made


class Users(Storage):
    """Needs nothing."""


class Wants(Storage):
    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def from_crawler(cls, crawler: Any) -> Wants:
        return cls(crawler.settings["WANTED"])


class NoStorage:
    pass


def opened(storage: Any, **settings: Any) -> StorageClient | None:
    crawler = get_crawler(settings_dict={"REP_CACHE_STORAGE": storage, **settings})
    return open_storage(crawler, RepSettings.from_settings(crawler.settings), lambda: NOW)


def test_memory_needs_no_access() -> None:
    """What is in memory is known without it. What is made from that may write a file in the end."""

    class Written(MemoryStorage):
        pass

    assert opened(MemoryStorage) is opened("scrapy_rep.storages.MemoryStorage") is None
    assert opened(Written) is not None


def test_made_as_scrapy_makes_components() -> None:
    for storage in (Users, f"{__name__}.Users"):
        made = opened(storage)
        assert made is not None
        assert type(made._calls.storage).__name__ == "Users"
    made = opened(Wants, WANTED="this")
    assert made is not None
    assert made._calls.storage.value == "this"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ("nowhere.Storage", "can't be imported: No module named 'nowhere'"),
        ("scrapy_rep.storages.Nothing", "can't be imported"),
        ("SqliteStorage", "can't be imported"),
        (f"{__name__}.NoStorage", "is not a subclass of scrapy_rep.storages.Storage"),
        (NoStorage, "is not a subclass of scrapy_rep.storages.Storage"),
        (f"{__name__}.opened", "is not a subclass of scrapy_rep.storages.Storage"),
    ],
)
def test_what_is_no_storage(storage: Any, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        opened(storage)
    assert str(caught.value).startswith("REP_CACHE_STORAGE is ")
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_the_class_of_the_readme_needs_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = users_class()
    assert {name for name in vars(made) if name in vars(Storage)} >= {"load", "save"}
    storage = made()
    assert storage.lease(A, "me", 3600.0)
    storage.save(rules())
    storage.release(A, "me")
    storage.purge(NOW)
    storage.close()
    assert made().load(A) == rules()
    for method in (lambda: storage.drop(A), lambda: next(iter(storage.entries()))):
        with pytest.raises(NotImplementedError):
            method()


# What a claim says


async def test_an_answer_that_comes_between_the_two(world: World) -> None:
    """Between the look and the lease: the lease is given back, and nobody asks once more."""
    other_has_answered = [lambda: MemoryStorage.save(world.storage, rules())]
    world.storage.before["lease"] = lambda: other_has_answered.pop()()
    assert await world.access.claim(A, always) == Claim(rules(), granted=False)
    assert world.storage.leases == {}


async def test_what_was_published_is_claimed_next(world: World) -> None:
    """In the order in which it was asked for."""
    for number in range(20):
        world.access.publish(missing(A, NOW + number))
        assert (await world.access.claim(A, always)).entry == missing(A, NOW + number)


async def test_a_claim_right_after_a_lease_was_given_back(world: World) -> None:
    """The lease goes on: it must not end under the second fetch."""
    await world.access.claim(A, never)
    slow = Hanging(world, "purge")
    world.access.purge()
    await slow.begins()
    world.access.give_back(A)
    again = deferred_from_coro(world.access.claim(A, never))
    slow.go_on()
    assert (await maybe_deferred_to_future(again)).granted
    await world.settle()
    assert world.storage.leases.keys() == {A}


# Threads


@pytest.mark.loop
async def test_the_event_loop_goes_on(world: World) -> None:
    """Each call waits until the event loop has turned some times meanwhile: it would wait for
    ever if it held the loop."""
    turns, stuck = 0, []
    go_on = threading.Event()

    def tick() -> None:
        nonlocal turns
        turns += 1
        if turns % 5 == 0:
            go_on.set()
        timers[0] = call_later(0.001, tick)

    def wait() -> None:
        go_on.clear()
        if not go_on.wait(10):
            stuck.append(world.storage.calls[-1])

    timers = [call_later(0.001, tick)]
    try:
        methods = ("load", "save", "lease", "release", "purge", "close")
        world.storage.before = dict.fromkeys(methods, wait)
        assert (await world.access.claim(A, never)).granted
        world.access.publish(rules())
        world.access.give_back(A)
        world.access.purge()
        await world.access.close()
    finally:
        timers[0].cancel()
    assert stuck == []
    assert set(world.storage.names()) == set(methods)
    assert world.storage.names()[-1] == "close"
    assert threading.get_ident() not in world.storage.threads
    assert world.storage.overlaps == 0


# Cancelling


@pytest.mark.loop
@pytest.mark.parametrize("queued", [False, True], ids=["under way", "queued"])
async def test_a_claim_that_is_given_up_leaves_no_lease(world: World, queued: bool) -> None:
    """Others would wait for it, for as long as it lasts."""
    slow = Hanging(world, "lease")
    first = deferred_from_coro(world.access.claim(A, always))
    given_up = deferred_from_coro(world.access.claim(B, always)) if queued else first
    given_up.addErrback(lambda _: None)
    await slow.begins()
    given_up.cancel()
    await a_while(0)
    slow.go_on()
    if queued:
        assert (await maybe_deferred_to_future(first)).granted
    await world.settle()
    del world.storage.before["lease"]
    origin = B if queued else A
    assert origin not in world.storage.leases
    assert (await world.new().claim(origin, always)).granted
    # And who stays can go on.
    assert (await world.access.claim("http://c:80", always)).granted


# Leases


def ring(world: World) -> float:
    """Let the only timer ring. Return what its seconds were."""
    [timer] = [one for one in world.timers if not one.cancelled]
    world.timers.clear()
    timer.function()
    return timer.seconds  # type: ignore[no-any-return]


async def test_leases_are_renewed_in_time(world: World) -> None:
    """As long as the answer is not there: a redirect takes its own time."""
    assert world.timers == []
    for origin in (A, B):
        await world.access.claim(origin, always)
    for expected in ({A, B}, {B}, set()):
        world.storage.calls.clear()
        assert 0 < ring(world) <= LEASE / 2
        await world.settle()
        renewed = [one[1:] for one in world.storage.calls]
        assert set(renewed) == {(origin, LEASE) for origin in expected}
        assert len(renewed) == len(expected)
        if expected == {A, B}:
            world.access.publish(missing(A))
        else:
            world.access.give_back(B)
        await world.settle()
    assert world.timers == [], "nothing is left to be renewed"
    await world.access.claim(A, never)
    assert len(world.timers) == 1


async def test_closing_finishes_the_queue_and_leaves_no_lease_or_timer(world: World) -> None:
    """Everything that was queued is done, no lease and no timer is left."""
    for origin in (A, B):
        await world.access.claim(origin, always)
    world.access.publish(rules(A))
    await world.access.close()
    assert world.storage.leases == {}
    assert world.storage.load(A) == rules()
    assert all(one.cancelled for one in world.timers)
    assert world.storage.names().count("close") == 1
    assert world.storage.names()[-2] == "close"  # and the look of this test


async def test_what_comes_too_late_asks_nothing_of_the_storage(world: World) -> None:
    """A user's extension may still download while the storage is closed."""
    await world.access.claim(A, always)
    slow = Hanging(world, "close")
    closed = deferred_from_coro(world.access.close())
    await slow.begins()
    calls = world.storage.names()
    assert await world.access.claim(B, always) == Claim(None, granted=True)
    world.access.publish(rules(B))
    world.access.purge()
    slow.go_on()
    await maybe_deferred_to_future(closed)
    await world.settle()
    assert world.storage.names() == calls


# Batches


ORIGINS = [f"http://{number}.test:80" for number in range(900)]


async def claimed(access: StorageClient, origins: list[str]) -> list[Claim]:
    claims = [deferred_from_coro(access.claim(origin, never)) for origin in origins]
    return [await maybe_deferred_to_future(one) for one in claims]


async def test_claims_that_gather_go_together(world: World) -> None:
    claims = await claimed(world.access, ORIGINS)
    assert claims == [Claim(None, granted=True)] * 900
    loads = [size for name, size in sizes(world) if name == "load"]
    assert (sum(loads), max(loads)) == (1800, 500), "each is looked up twice"
    assert len(loads) <= 8
    for origin in ORIGINS:
        world.access.publish(missing(origin))
    await world.settle()
    assert_saved_before_released(world, ORIGINS)
    found = sizes(world)
    saves = [size for name, size in found if name == "save"]
    assert (sum(saves), max(saves)) == (900, 500)
    assert len(saves) <= 4
    assert sum(size for name, size in found if name == "release") == 900
    assert world.storage.leases == {}
    claims = await claimed(world.new(), ORIGINS)
    assert [claim.entry for claim in claims] == [missing(origin) for origin in ORIGINS]


def assert_saved_before_released(world: World, origins: list[str]) -> None:
    calls = [one[:2] for one in world.storage.calls if one[0] in ("save", "release")]
    assert {one for one in calls if one[0] == "release"} >= {("release", one) for one in origins}
    early = [one for one in origins if calls.index(("release", one)) < calls.index(("save", one))]
    assert early == []


async def test_leases_outlast_a_backlog_of_older_answers(world: World) -> None:
    """Those of an outage are saved first; nobody's lease ends before its own answer's turn."""
    world.storage.fails["save"] = FULL
    for origin in ORIGINS[:600]:
        world.access.publish(missing(origin))
    await world.settle()
    world.storage.fails.clear()
    await claimed(world.access, ORIGINS[600:])
    world.now += 10.1
    for origin in ORIGINS[600:]:
        world.access.publish(missing(origin))
    await world.settle()
    assert_saved_before_released(world, ORIGINS[600:])
    assert world.storage.leases == {}


async def test_leases_end_though_nothing_can_be_saved(world: World) -> None:
    """Then others may fetch; the answers wait, more of them than fit into one call."""
    await claimed(world.access, ORIGINS)
    world.storage.fails["save"] = FULL
    for origin in ORIGINS:
        world.access.publish(missing(origin))
    await world.settle()
    assert world.storage.leases == {}
    world.storage.calls.clear()
    world.storage.fails.clear()
    await world.access.close()
    saved = {one[1] for one in world.storage.calls if one[0] == "save"}
    assert saved == set(ORIGINS)
    assert world.storage.names()[-1] == "close"


async def test_renewals_share_the_limit_of_a_batch(world: World) -> None:
    await claimed(world.access, ORIGINS)
    sizes(world)
    world.access._renew()
    await claimed(world.access, [A, B])
    leases = [size for name, size in sizes(world) if name == "lease"]
    assert (sum(leases), max(leases)) == (902, 500)


async def test_each_claim_gets_its_own_answer(world: World) -> None:
    """In one batch: known and enough, known and not enough, leased by another or by itself, unknown, broken."""
    for origin in ("http://enough:80", "http://stale:80"):
        world.storage.save(missing(origin))
    await world.new().claim("http://leased:80", always)
    await world.access.claim("http://own:80", always)
    broken = "http://broken:80"
    load_many = world.storage.load_many
    world.storage.load_many = lambda origins: {  # type: ignore[method-assign]
        **load_many(origins),
        **({broken: UnreadableEntry("broken")} if broken in origins else {}),
    }
    tests = {"stale": never, **dict.fromkeys(("enough", "leased", "own", "new", "broken"), always)}
    claims = {
        name: deferred_from_coro(world.access.claim(f"http://{name}:80", test))
        for name, test in tests.items()
    }
    with captured_log() as records:
        found = {name: await maybe_deferred_to_future(one) for name, one in claims.items()}
    assert found == {
        "stale": Claim(missing("http://stale:80"), granted=True),
        "enough": Claim(missing("http://enough:80"), granted=False),
        "leased": Claim(None, granted=False),
        "own": Claim(None, granted=True),
        "new": Claim(None, granted=True),
        "broken": Claim(None, granted=True),
    }
    assert len(lines(records, level="WARNING")) == 1


async def test_a_claim_is_next_after_a_save(world: World) -> None:
    """What is still to be saved or purged is done after it, however long it has waited."""
    slow = Hanging(world, "save")
    world.access.publish(missing(ORIGINS[0]))
    await slow.begins()
    for origin in ORIGINS[1:]:
        world.access.publish(missing(origin))
    world.access.purge()
    claim = deferred_from_coro(world.access.claim(B, always))
    slow.go_on()
    await maybe_deferred_to_future(claim)
    await world.settle()
    names = world.storage.names()
    assert names[:4] == ["save", "load", "lease", "load"]
    assert names.count("save") == 900
    assert "purge" in names[4:]


async def test_claims_are_answered_between_slices_of_a_purge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may have very many old rows."""
    slices = [True, True, False]

    def purge_some(before: float) -> bool:
        world.storage._call("slice")
        return slices.pop(0)

    monkeypatch.setattr(world.storage, "purge_some", purge_some)
    slow = Hanging(world, "slice")
    world.access.purge()
    await slow.begins()
    claim = deferred_from_coro(world.access.claim(A, always))
    slow.go_on()
    assert (await maybe_deferred_to_future(claim)).granted
    await world.settle()
    assert world.storage.names() == ["slice", "load", "lease", "load", "slice", "slice"]


async def test_what_could_not_be_saved_is_saved_later_but_replaces_nothing_newer(
    world: World,
) -> None:
    """By itself, without anything else to do: the crawl may ask for nothing more."""
    world.storage.fails["save"] = FULL
    for origin in (A, B):
        world.access.publish(missing(origin, NOW))
    await world.settle()
    world.storage.fails.clear()
    world.storage.save(missing(A, NOW + 5))
    world.storage.save(missing(B, NOW - 5))
    world.now += 10.1
    [timer] = world.timers
    timer.function()
    await world.settle()
    assert world.storage.load(A) == missing(A, NOW + 5)
    assert world.storage.load(B) == missing(B, NOW)
    assert world.timers == [timer], "no more"
    calls = len(world.storage.calls)
    world.access.publish(missing(A, NOW + 9))
    await world.settle()
    assert [one[0] for one in world.storage.calls[calls:]] == ["save"], "others' are not looked up"


@pytest.mark.parametrize("bad", [0, 9])
async def test_one_that_can_not_be_saved_keeps_no_other_from_it(world: World, bad: int) -> None:
    origins = ORIGINS[:10]
    save = world.storage.save

    def picky(entry: Entry) -> None:
        if entry.origin == origins[bad]:
            raise ValueError("too large")
        save(entry)

    world.storage.save = picky  # type: ignore[method-assign]
    world.access.purge()  # the first call is under way
    for origin in origins:
        world.access.publish(missing(origin))
    for _ in range(3):
        await world.settle()
        world.now += 10.1
        for timer in world.timers:
            timer.function()
        world.timers.clear()
    saved = [origin for origin in origins if world.storage.load(origin)]
    assert saved == [origin for origin in origins if origin != origins[bad]]
    assert world.lost == 1


async def test_what_waits_to_be_saved_is_limited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_ENTRIES", 20)
    world.storage.fails["save"] = FULL
    for origin in ORIGINS[:50]:
        world.access.publish(missing(origin))
        await world.settle()
    waiting = world.access._unsaved
    assert len(waiting) == 20
    assert world.lost == 30
    assert waiting.get(ORIGINS[49]) is not None
    monkeypatch.setattr(client, "_MAX_BYTES", 4 * len(rules().packed))
    for number in range(50):
        world.access.publish(rules(f"http://{number}.large:80"))
    assert len(waiting) == 4
    assert world.lost == 30 + 20 + 46
    await world.access.close()
    assert world.lost == 100, "nor at the end"


async def test_leases_of_a_users_class_may_be_nonsense(world: World) -> None:
    """One warning, and everybody may ask: no claim is left without an answer."""
    world.storage.lease_many = lambda *_: None  # type: ignore
    with captured_log() as records:
        claims = await claimed(world.access, ORIGINS[:3])
    assert claims == [Claim(None, granted=True)] * 3
    assert len(lines(records, level="WARNING")) == 1
    await world.access.close()


# While it fails


async def use(world: World, origin: str = A) -> Claim:
    """What the cache does with an origin that has to be asked for."""
    claim = await world.access.claim(origin, never)
    if claim.granted:
        world.access.publish(rules(origin))
    await world.settle()
    return claim


async def test_what_fails_is_not_called_for_a_while(world: World) -> None:
    """A server that hangs would delay each origin."""
    world.storage.fails = dict.fromkeys(ALL, FULL)
    await use(world)
    before = len(world.storage.calls)
    for number in range(20):
        claim = await use(world, f"http://{number}:80")
        assert claim == Claim(None, granted=True), "everybody may ask"
    assert len(world.storage.calls) == before
    world.now += 10.1
    await use(world)
    again = len(world.storage.calls) - before
    assert 1 <= again <= len(ALL), "it is tried again, once"
    for number in range(20):
        await use(world, f"http://{number}:80")
    assert len(world.storage.calls) == before + again


async def failed_and_hangs(world: World, call: str) -> Hanging:
    """A storage has failed and is tried again, when a *call* hangs."""
    world.storage.fails = dict.fromkeys(ALL, TimeoutError("no answer"))
    await use(world)
    world.now += 10.1
    return Hanging(world, call)


@pytest.mark.loop
@pytest.mark.parametrize("under_way", ["load", "save"])
async def test_nobody_waits_long_for_a_storage_that_hangs_and_fails(
    world: World, under_way: str
) -> None:
    """Its calls, reads and writes, take a timeout each. A claim doesn't wait for these."""
    slow = await failed_and_hangs(world, under_way)
    first = deferred_from_coro(world.access.claim(B, never))  # tries again
    if under_way == "save":
        world.access.publish(rules("http://c:80"))
    await slow.begins()
    second = deferred_from_coro(world.access.claim(A, never))
    await a_while(0)
    for timer in world.timers:
        if not timer.cancelled and timer.seconds < 1:
            timer.function()
    assert await maybe_deferred_to_future(first) == Claim(None, granted=True)
    assert await maybe_deferred_to_future(second) == Claim(rules(A), granted=True), "not yet saved"
    slow.go_on()
    await world.settle()


async def test_nothing_gathers_while_the_storage_hangs(world: World) -> None:
    """It failed once and hangs since: claims that were answered without it, and leases that it never
    gave, are forgotten."""
    slow = await failed_and_hangs(world, "load")
    first = deferred_from_coro(world.access.claim(B, never))
    await slow.begins()
    world.timers.clear()
    origins = [f"http://{number}:80" for number in range(50)]
    claims = [deferred_from_coro(world.access.claim(origin, never)) for origin in origins]
    await a_while(0)
    for timer in world.timers:
        timer.function()
    for origin, claim in zip(origins, claims, strict=True):
        assert (await maybe_deferred_to_future(claim)).granted
        world.access.publish(rules(origin))
    world.storage.calls.clear()
    world.storage.fails.clear()
    slow.go_on()
    assert (await maybe_deferred_to_future(first)).granted
    await world.settle()
    asked = {one[1] for one in world.storage.calls if one[0] in ("lease", "release")}
    assert asked.isdisjoint(origins)


async def test_writes_wait_for_claims_while_the_storage_fails(world: World) -> None:
    """Those who came while it failed first are answered next."""
    world.storage.fails = dict.fromkeys(ALL, TimeoutError("no answer"))
    slow = Hanging(world, "load")
    first = deferred_from_coro(world.access.claim(A, never))
    await slow.begins()
    world.access.publish(rules("http://c:80"))
    second = deferred_from_coro(world.access.claim(B, never))
    await a_while(0)
    answered, found = threading.Event(), []
    second.addBoth(lambda _: answered.set())
    world.storage.before["save"] = lambda: found.append(answered.wait(5))
    slow.go_on()
    await maybe_deferred_to_future(first)
    await maybe_deferred_to_future(second)
    await world.access.close()
    assert found[0]


@pytest.mark.parametrize("methods", [("load",), ("save",), ("lease",), ("release",), ALL])
async def test_one_method_fails_or_all(world: World, methods: tuple[str, ...]) -> None:
    """If the others work, the outage is one all the same, until all work again."""
    world.access.purge()
    world.storage.fails = dict.fromkeys(methods, FULL)
    with captured_log() as records:
        for number in range(20):
            await use(world, f"http://{number}:80")
            world.now += 3.7
        assert len(lines(records, level="WARNING")) == 1
        assert lines(records) == []
        world.storage.fails = {}
        for number in range(20):
            await use(world, f"http://{number}:80")
            world.now += 3.7
        assert len(lines(records, level="WARNING")) == 1
        assert len(lines(records)) == 1


async def test_a_purge_that_fails_does_not_hide_what_comes_later(world: World) -> None:
    """There is one in a crawl: it is not waited for to work again."""
    world.storage.fails = {"purge": FULL}
    world.access.purge()
    world.now += 10.1
    with captured_log() as records:
        await use(world)
        world.storage.fails = dict.fromkeys(ALL, FULL)
        await use(world, B)
    assert len(lines(records, level="WARNING")) == 1


@pytest.mark.parametrize("error", [StopIteration(), MemoryError()])
async def test_whatever_is_raised(world: World, error: Exception) -> None:
    world.storage.fails = dict.fromkeys([*ALL, "close"], error)
    with captured_log() as records:
        assert (await use(world)).granted
        world.access.give_back(A)
        world.access.purge()
        await world.access.close()
    assert len(lines(records, level="WARNING")) == 1
    assert type(error).__name__ in lines(records, level="WARNING")[0]


# Entries that can't be read


@pytest.mark.parametrize("found", [rules(B), rules(packed=b"damaged"), "text", 7], ids=type)
async def test_what_is_not_the_entry_counts_as_nothing(world: World, found: object) -> None:
    """Another origin's, damaged, or not what a storage returns."""
    world.storage.load = lambda origin: found  # type: ignore
    with captured_log() as records:
        assert await world.access.claim(A, always) == Claim(None, granted=True)
    assert len(lines(records, level="WARNING")) == 1
