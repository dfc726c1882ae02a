"""A storage as the crawl uses it: made from REP_CACHE_STORAGE; in threads, one call at a time, with the
event loop free; what comes while it is busy goes into the next call, together; what it can't save
waits; while it fails, the crawl goes on without it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.test import get_crawler

from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import (
    Entry,
    MemoryStorage,
    Storage,
    Turn,
    UnreadableEntry,
    client,
)
from scrapy_rep.storages.client import Claim, open_storage
from tests.helpers.crawling import captured_log
from tests.helpers.held import a_while
from tests.helpers.log import lines, warnings
from tests.helpers.storing import NOW, A, B, missing, rules, users_class
from tests.storages.world import LEASE, HangingCalls, StorageWorld, always, never

FULL = OSError(28, "No space left on device")
ALL = ("load", "save", "lease", "release")
ORIGINS = [f"http://{number}.test:80" for number in range(900)]
GRANTED = Claim(None, granted=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> StorageWorld:
    return StorageWorld(monkeypatch)


class Users(Storage):
    """Needs nothing."""


class Wants(Users):
    given = ""

    @classmethod
    def from_crawler(cls, crawler: Any) -> Wants:
        cls.given = crawler.settings["WANTED"]
        return cls()


def opened(storage: Any, **settings: Any) -> Any:
    crawler = get_crawler(settings_dict={"REP_CACHE_STORAGE": storage, **settings})
    return open_storage(crawler, RepSettings.from_settings(crawler.settings))


def opened_with(kind: type[Storage]) -> tuple[Any, Any]:
    """A client, and its storage, which is of this kind."""
    made: list[Storage] = []

    def from_crawler(cls: type[Storage], crawler: Any) -> Storage:
        made.append(cls())
        return made[-1]

    noted = type(kind.__name__, (kind,), {"from_crawler": classmethod(from_crawler)})
    return opened(noted), made[0]


def test_made_as_scrapy_makes_components() -> None:
    written = type("Written", (MemoryStorage,), {})  # it may write a file in the end
    for storage, name in (
        (Users, "Users"),
        (f"{__name__}.Users", "Users"),
        (written, "Written"),
    ):
        assert opened(storage).name == name
    opened(Wants, WANTED="this")
    assert Wants.given == "this"
    # What is in memory is known without a client.
    assert opened(MemoryStorage) is opened("scrapy_rep.storages.MemoryStorage") is None


NO_STORAGES: dict[Any, str] = {
    "nowhere.Storage": "can't be used: ModuleNotFoundError: No module named 'nowhere'",
    "scrapy_rep.storages.Nothing": "can't be used",
    "SqliteStorage": "can't be used",
    StorageWorld: "is not a subclass of scrapy_rep.storages.Storage",
    type(
        "Raises", (Storage,), {"load": None, "__init__": lambda self: 1 / 0}
    ): "division by zero",
    f"{__name__}.opened": "is not a subclass of scrapy_rep.storages.Storage",
}


SQLITE = "scrapy_rep.storages.SqliteStorage"
MISSPELT = {
    "scrapy_rep.storages.SQLiteStorage": SQLITE,
    "scrapy_rep.storages.SqlLiteStorage": SQLITE,
    "scrapy_rep.storage.SqliteStorage": SQLITE,
    "scrapy_rep.SqliteStorage": SQLITE,
    "scrapyrep.storages.sqlite": SQLITE,
    "storages.SqliteStorage": SQLITE,
    "SqliteStorage": SQLITE,
    "sqlite": SQLITE,
    "redis": "scrapy_rep.storages.RedisStorage",
    "memory": "scrapy_rep.storages.MemoryStorage",
    # These are others', or nothing like one of ours.
    "nowhere.Storage": None,
    "myproject.SqliteStorage": None,
    "scrapy_rep.storages.Nothing": None,
}


def test_a_misspelt_storage_is_suggested() -> None:
    for path, meant in MISSPELT.items():
        with pytest.raises(SettingsError) as raised:
            opened(path)
        said = str(raised.value)
        assert said.endswith(f" Did you mean {meant}?") == (meant is not None), path
        assert ("Did you mean" in said) == (meant is not None), path


def test_what_is_no_storage() -> None:
    for storage, words in NO_STORAGES.items():
        with pytest.raises(
            SettingsError, match=rf"^REP_CACHE_STORAGE is .*{words}.*[.?]$"
        ):
            opened(storage)


def test_the_class_of_the_manual_needs_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = users_class()()
    assert storage.lease(A, "me", 3600.0)
    storage.save(rules())
    storage.release(A, "me")
    storage.close()
    assert storage.load(A) == rules()
    for method in (lambda: storage.drop(A), lambda: next(iter(storage.entries()))):
        with pytest.raises(NotImplementedError):
            method()


async def test_an_answer_that_comes_between_the_two(world: StorageWorld) -> None:
    """Between the look and the lease: the lease is given back, and nobody asks once more."""
    other_has_answered = [lambda: MemoryStorage.save(world.storage, rules())]
    world.storage.before["lease"] = lambda: other_has_answered.pop()()
    assert await world.client.claim(A, always) == Claim(rules(), granted=False)
    assert world.storage.leases == {}


async def test_a_claim_right_after_a_lease_was_given_back(world: StorageWorld) -> None:
    """The lease goes on: it must not end under the second fetch."""
    await world.client.claim(A, never)
    slow = HangingCalls(world, "save")
    world.client.publish(missing(B))
    await slow.begins()
    world.client.give_back_lease(A)
    again = deferred_from_coro(world.client.claim(A, never))
    slow.go_on()
    assert (await maybe_deferred_to_future(again)).granted
    await world.settle()
    assert world.storage.leases.keys() == {A}


async def test_each_claim_gets_its_own_answer(world: StorageWorld) -> None:
    """In one batch: known and enough, known and not enough, leased by another or by itself, unknown; what
    is not the entry counts as nothing, with one warning."""
    enough, stale, leased, own, damaged, anothers, broken, *_ = origins = ORIGINS[:8]
    world.storage.save_many([missing(enough), missing(stale)])
    await world.new().claim(leased, always)
    await world.client.claim(own, always)
    odd = {damaged: rules(damaged, packed=b"damaged"), anothers: rules(B)}
    load = world.storage.load

    def load_odd(origin: str) -> Entry | None:
        if origin == broken:
            raise UnreadableEntry("broken")
        return odd.get(origin) or load(origin)

    world.storage.load = load_odd  # type: ignore[method-assign]
    with captured_log() as records:
        found = await world.claims(
            origins, is_enough=lambda entry: entry.origin == enough
        )
    assert found == [
        Claim(missing(enough), granted=False),
        Claim(missing(stale), granted=True),
        Claim(None, granted=False),
        *[GRANTED] * 5,
    ]
    assert len(warnings(records)) == 1


@pytest.mark.loop
async def test_the_event_loop_goes_on(world: StorageWorld) -> None:
    """Each call waits for the event loop to turn, and gets stuck if it holds the loop up itself."""
    go_on, stuck = threading.Event(), []

    def wait() -> None:
        go_on.clear()
        if not go_on.wait(10):
            stuck.append(world.storage.calls[-1])

    async def use() -> None:
        assert (await world.client.claim(A, never)).granted
        world.client.publish(rules())
        world.client.give_back_lease(A)
        await world.client.close()

    methods = (*ALL, "close")
    world.storage.before = dict.fromkeys(methods, wait)
    done = deferred_from_coro(use())
    while not done.called:
        await a_while(0.001)
        go_on.set()
    await maybe_deferred_to_future(done)
    assert stuck == []
    assert set(world.storage.names()) == set(methods)
    assert world.storage.names()[-1] == "close"
    assert threading.get_ident() not in world.storage.threads
    assert world.storage.overlaps == 0


@pytest.mark.loop
@pytest.mark.parametrize(
    "how", ["cancelled", "cancelled in the queue", "thrown away", "unread"]
)
async def test_a_claim_that_is_given_up_leaves_no_lease(
    world: StorageWorld, how: str
) -> None:
    """Others would wait for it, for as long as it lasts."""
    slow, others = HangingCalls(world, "lease"), []
    if how == "cancelled in the queue":
        others.append(deferred_from_coro(world.client.claim(B, always)))
    claim = world.client.claim(A, always)
    if how.startswith("cancelled"):
        given_up = deferred_from_coro(claim)
        given_up.addErrback(lambda _: None)
        await slow.begins()
        given_up.cancel()
    else:
        claim.send(None)
        await slow.begins()
        if how == "unread":  # the answer was there, but nobody has looked at it
            slow.go_on()
            await world.settle()
        claim.close()
    await a_while(0)
    slow.go_on()
    for other in others:
        assert (await maybe_deferred_to_future(other)).granted
    await world.settle()
    del world.storage.before["lease"]
    assert A not in world.storage.leases
    assert (await world.new().claim(A, always)).granted
    # And who stays can go on.
    assert (await world.client.claim("http://d:80", always)).granted


async def test_leases_are_renewed_in_time(world: StorageWorld) -> None:
    """Until there is an answer: a silent site takes the whole timeout, a redirect even longer."""
    await world.claims([A, B])
    ends = (
        lambda: world.client.publish(missing(A)),
        lambda: world.client.give_back_lease(B),
        None,
    )
    for expected, end in zip(([A, B], [B], []), ends, strict=True):
        world.storage.calls.clear()
        [timer] = world.timers
        assert 0 < timer.seconds <= LEASE / 2
        world.later()
        await world.settle()
        renewed = sorted(one[1:] for one in world.storage.calls)
        assert renewed == [(origin, LEASE) for origin in expected]
        if end:
            end()
            await world.settle()
    assert world.timers == [], "nothing is left to be renewed"


async def test_closing_finishes_the_queue_and_leaves_no_lease_or_timer(
    world: StorageWorld,
) -> None:
    """A user's extension may still download meanwhile: that asks nothing of the storage."""
    await world.claims([A, B])
    world.client.publish(rules(A))
    slow = HangingCalls(world, "close")
    closed = deferred_from_coro(world.client.close())
    await slow.begins()
    assert world.storage.leases == {}
    assert all(one.cancelled for one in world.timers)
    calls = world.storage.names()
    assert calls.index("close") == len(calls) - 1
    assert await world.client.claim(B, always) == GRANTED
    world.client.publish(rules(B))
    slow.go_on()
    await maybe_deferred_to_future(closed)
    await world.settle()
    assert world.storage.names() == calls
    assert world.storage.load(A) == rules(A)


def assert_saved_before_released(world: StorageWorld, origins: list[str]) -> None:
    calls = [one[:2] for one in world.storage.calls if one[0] in ("save", "release")]
    early = [
        one
        for one in origins
        if calls.index(("release", one)) < calls.index(("save", one))
    ]
    assert early == []
    assert world.storage.leases == {}


async def test_claims_that_gather_go_together(world: StorageWorld) -> None:
    assert await world.claims(ORIGINS) == [GRANTED] * 900
    loads = world.storage.batches("load")
    assert (sum(loads), max(loads)) == (1800, 500), "each is looked up twice"
    assert len(loads) <= 8
    leases = world.storage.batches("lease")
    assert (sum(leases), max(leases)) == (900, 500)
    await world.publish(*map(missing, ORIGINS))
    assert_saved_before_released(world, ORIGINS)
    saves = world.storage.batches("save")
    assert (sum(saves), max(saves)) == (900, 500)
    assert len(saves) <= 5
    assert sum(world.storage.batches("release")) == 900
    claims = await world.claims(ORIGINS, by=world.new())
    assert [claim.entry for claim in claims] == [missing(origin) for origin in ORIGINS]


async def test_leases_outlast_a_backlog_of_older_answers(world: StorageWorld) -> None:
    """Those of an outage are saved first; nobody's lease ends before its own answer's turn."""
    world.storage.fails["save"] = FULL
    await world.publish(*map(missing, ORIGINS[:600]))
    world.storage.fails.clear()
    await world.claims(ORIGINS[600:])
    world.now += 10.1
    await world.publish(*map(missing, ORIGINS[600:]))
    assert_saved_before_released(world, ORIGINS[600:])


async def test_leases_end_though_nothing_can_be_saved(world: StorageWorld) -> None:
    """Then others may fetch; the answers wait, more of them than fit into one call."""
    await world.claims(ORIGINS)
    world.storage.fails["save"] = FULL
    await world.publish(*map(missing, ORIGINS))
    assert world.storage.leases == {}
    world.storage.calls.clear()
    world.storage.fails.clear()
    await world.client.close()
    assert {one[1] for one in world.storage.calls if one[0] == "save"} == set(ORIGINS)
    assert world.storage.names()[-1] == "close"


async def test_a_claim_is_next_after_a_save(world: StorageWorld) -> None:
    """What is still to be saved is saved after it, however long it has waited."""
    slow = HangingCalls(world, "save")
    world.client.publish(missing(ORIGINS[0]))
    await slow.begins()
    for origin in ORIGINS[1:]:
        world.client.publish(missing(origin))
    claim = deferred_from_coro(world.client.claim(B, always))
    slow.go_on()
    await maybe_deferred_to_future(claim)
    await world.settle()
    names = world.storage.names()
    assert names[:4] == ["save", "load", "lease", "load"]
    assert names.count("save") == 900


async def test_what_could_not_be_saved_is_saved_later(world: StorageWorld) -> None:
    """By itself, without anything else to do: the crawl may ask for nothing more."""
    world.storage.fails["save"] = FULL
    await world.publish(missing(A, NOW), missing(B, NOW), missing(A, NOW + 5))
    world.storage.fails.clear()
    assert len(world.timers) == 1
    world.later()
    await world.settle()
    assert world.storage.load_many([A, B]) == {
        A: missing(A, NOW + 5),
        B: missing(B, NOW),
    }
    assert world.timers == []


async def test_one_that_can_not_be_saved_keeps_no_other_from_it(
    world: StorageWorld,
) -> None:
    """Whatever stands first when nothing can be saved comes last the next time."""
    origins = ORIGINS[:5]
    save = world.storage.save

    def picky(entry: Entry) -> None:
        if entry.origin == origins[3]:
            raise ValueError("too large")
        save(entry)

    world.storage.save = picky  # type: ignore[method-assign]
    await world.publish(*map(missing, origins))
    for _ in origins:
        world.later()
        await world.settle()
    assert world.storage.load_many(origins).keys() == {*origins} - {origins[3]}
    assert world.lost == 0
    await world.client.close()
    assert world.lost > 0


async def test_what_waits_to_be_saved_is_limited(
    world: StorageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_MAX_UNSAVED", 20)
    world.storage.fails["save"] = FULL
    for origin in ORIGINS[:50]:
        await world.publish(missing(origin))
    waiting = world.client._unsaved
    assert (len(waiting), world.lost) == (20, 30)
    assert ORIGINS[49] in waiting
    monkeypatch.setattr(client, "_MAX_UNSAVED_BYTES", 4 * len(rules().packed))
    await world.publish(*(rules(f"http://{number}.large:80") for number in range(50)))
    assert (len(waiting), world.lost) == (4, 30 + 20 + 46)
    await world.client.close()
    assert world.lost == 100, "nor at the end"


async def test_what_fails_is_not_called_for_a_while(world: StorageWorld) -> None:
    """A server that hangs would delay each origin."""
    world.storage.fails = dict.fromkeys(ALL, FULL)
    await world.use()
    calls = world.storage.calls
    for most in (0, len(ALL)):
        calls.clear()
        await world.use()
        tried_again = len(calls)
        assert bool(most) <= tried_again <= most
        for number in range(20):
            assert await world.use(f"http://{most}.{number}:80") == GRANTED, (
                "everybody may ask"
            )
        assert len(calls) == tried_again
        world.now += 10.1


async def test_a_storage_that_hangs_and_fails_holds_up_only_who_tries_it(
    world: StorageWorld,
) -> None:
    world.storage.fails = dict.fromkeys(ALL, TimeoutError("no answer"))
    slow = HangingCalls(world, "load")
    under_way = deferred_from_coro(world.client.claim(B, never))
    await slow.begins()
    slow.go_on()
    assert await maybe_deferred_to_future(under_way) == GRANTED
    assert world.storage.names() == ["load"], "nor is a lease asked for"
    assert await world.client.claim(A, never) == GRANTED
    assert world.storage.names() == ["load"]


@pytest.mark.parametrize(
    "methods", [("load",), ("save",), ("lease",), ("release",), ALL]
)
async def test_one_method_fails_or_all(
    world: StorageWorld, methods: tuple[str, ...]
) -> None:
    """If the others work, the outage is one all the same, until all work again."""
    with captured_log() as records:
        for fails, again in ((methods, 0), ((), 1)):
            world.storage.fails = dict.fromkeys(fails, FULL)
            for number in range(20):
                await world.use(f"http://{number}:80")
                world.now += 3.7
            assert (len(warnings(records)), len(lines(records))) == (1, again)


@pytest.mark.parametrize(
    "error", [StopIteration, MemoryError, TypeError, AttributeError]
)
async def test_whatever_is_raised(world: StorageWorld, error: type[Exception]) -> None:
    """One warning, and everybody may ask: no claim is left without an answer."""
    nonsense = {TypeError: "lease_many", AttributeError: "load"}
    if error in nonsense:
        setattr(world.storage, nonsense[error], lambda *_: 7)
    else:
        world.storage.fails = dict.fromkeys([*ALL, "close"], error())
    with captured_log() as records:
        assert await world.claims(ORIGINS[:3]) == [GRANTED] * 3
        world.client.publish(rules(ORIGINS[0]))
        await world.client.close()
    [warning] = warnings(records)
    assert error.__name__ in warning


class Turning(Storage):
    """Takes turns as the test says."""

    def __init__(self) -> None:
        self.calls: list[list[Turn]] = []
        self.answer: Any = None

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        self.calls.append([*turns])
        if isinstance(self.answer, Exception):
            raise self.answer
        waits: list[float] = [turn.wait + turn.seconds for turn in turns]
        return waits if self.answer is None else self.answer  # type: ignore[no-any-return]


@pytest.mark.loop
async def test_turns_are_asked_for_in_one_call() -> None:
    """And come by the monotonic clock: what passes until the call counts."""
    turning, storage = opened_with(Turning)
    assert turning.shares_turns
    assert not opened(Users).shares_turns
    before = time.monotonic()
    asked = [deferred_from_coro(turning.turn(origin, 5.0, 2.0)) for origin in (A, B)]
    moments = [await maybe_deferred_to_future(one) for one in asked]
    assert moments == pytest.approx([before + 7.0] * 2, abs=1.0)
    assert min(moments) >= before + 7.0
    # The first call begins at once, the other waits for its end.
    calls = storage.calls
    assert [[turn.origin for turn in call] for call in calls] in ([[A], [B]], [[A, B]])
    many = [deferred_from_coro(turning.turn(A, 5.0, 0.0)) for _ in range(900)]
    for one in many:
        await maybe_deferred_to_future(one)
    assert max(map(len, calls)) == 500
    await turning.close()
    assert await turning.turn(A, 5.0, 0.0) is None


@pytest.mark.parametrize(
    "answer", [FULL, [], [1.0, 1.0], ["1"], [-1.0], [1e9], [math.nan]]
)
async def test_without_turns_each_keeps_the_delay_by_itself(answer: Any) -> None:
    turning, storage = opened_with(Turning)
    storage.answer = answer
    with captured_log() as records:
        assert await turning.turn(A, 5.0, 0.0) is None
        storage.answer = None
        assert await turning.turn(A, 5.0, 0.0) is None  # it isn't asked for a while
    assert len(storage.calls) == 1
    [warning] = warnings(records)
    assert "can't be written" in warning
    turning._calls.again_at.clear()
    assert await turning.turn(A, 5.0, 0.0) is not None
    await turning.close()


class KeepsValues(Users):
    """Keeps values, and the order of calls."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"name": "old"}
        self.calls: list[str] = []
        self.error: Exception | None = None

    def load_value(self, name: str) -> str | None:
        self.calls.append("load")
        if self.error is not None:
            raise self.error
        return self.values.get(name)

    def save_value(self, name: str, value: str) -> None:
        self.calls.append("save")
        self.values[name] = value

    def close(self) -> None:
        self.calls.append("close")


async def test_a_value_is_replaced_when_the_crawl_has_ended() -> None:
    """By what the value is then, before the storage is closed. With None, it stays."""
    keeping, storage = opened_with(KeepsValues)
    assert keeping.keeps_values
    assert not opened(Users).keeps_values
    assert await keeping.load_value("name") == "old"
    assert await keeping.load_value("other") is None
    keeping.replace_at_close("name", lambda value, *, reason: f"{value} {reason}")
    keeping.replace_at_close("other", lambda value, *, reason: None)
    storage.values["name"] = "newer"
    await keeping.close("finished")
    assert storage.values == {"name": "newer finished"}
    assert storage.calls == ["load", "load", "load", "save", "load", "close"]
    assert await keeping.load_value("name") is None


async def test_a_value_that_can_not_be_read_is_none() -> None:
    """What isn't a short text is an empty one: somebody else has written it."""
    keeping, storage = opened_with(KeepsValues)
    for value in (5, b"x", ["x"], "x" * 1001):
        storage.values["name"] = value
        assert await keeping.load_value("name") == ""
    storage.error = FULL
    with captured_log() as records:
        assert await keeping.load_value("name") is None
    assert "can't be read" in warnings(records)[0]
    await keeping.close()
