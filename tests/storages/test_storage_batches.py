"""What comes while a storage is busy goes into the next call, together. What it can't save waits until
it works again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_rep.storages import Entry, UnreadableEntry, client
from scrapy_rep.storages.client import Claim, StorageClient
from tests.helpers.crawling import captured_log
from tests.helpers.log import lines
from tests.helpers.storing import NOW, A, B, Hanging, Watched, World, always, missing, never, rules

FULL = OSError(28, "No space left on device")


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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(monkeypatch)
    world.storage = Batches()
    world.access = world.new()
    return world


def sizes(world: World) -> list[tuple[str, int]]:
    assert isinstance(world.storage, Batches)
    found, world.storage.sizes = world.storage.sizes, []
    return found


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
