"""What must be true of the crawls of a world (`tests.fuzz.worlds`), whatever happened in it. Each fault
begins with its kind and a colon."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.fuzz.served import Asked, ServedOrigin, ServedWorld
from tests.fuzz.worlds import World

SLACK = 0.35
"""Seconds by which two processes may differ about when something happened, on a busy machine."""
HEARD = 1.5
"""Seconds within which an answer that was sent is used, on a busy machine."""
WORK = 0.03
"""Seconds that a page costs at least, on a busy machine."""
PROMPT = 3.5
"""Seconds within which a page of an origin that answers at once is fetched, while nothing is in its way."""
MARGIN = 0.5
"""Seconds that an answer which takes some time is safe from a timeout, on a busy machine."""
PATIENCE_SHARE = 0.6
"""Of REP_HOLD_MAX_WAIT. A last attempt before the time is over may bring the end of the wait forward."""
CLOSED = ("the crawl ended", "the crawl is ending", "CancelledError")


@dataclass
class RunRecord:
    """What one process wrote down."""

    number: int
    events: list[dict[str, Any]]
    status: int | None
    log: str
    stopped: bool
    held_before: int = 0
    """Rows of held requests in the JOBDIR before this run."""
    held_after: int = 0

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def began(self) -> float:
        return float(self.events[0]["t"]) if self.events else 0.0

    @property
    def ended(self) -> float:
        return float(self.events[-1]["t"]) if self.events else 0.0

    @property
    def stats(self) -> dict[str, Any]:
        closed = self.of("closed")
        return closed[0]["stats"] if closed else {}

    def errors(self) -> list[str]:
        """Records of errors in the log, but for what Scrapy says of a start() that a stop cancels."""
        records = re.split(r"^(?=\d{4}-\d\d-\d\d \d\d:)", self.log, flags=re.MULTILINE)
        wrong = re.compile(r"^\S+ \S+ \S+ (ERROR|CRITICAL): |^Traceback", re.MULTILINE)
        errors = [record for record in records if wrong.search(record)]
        if self.stopped:
            errors = [
                one for one in errors if "Error while reading start items" not in one
            ]
        return errors

    def pauses(self) -> list[tuple[float, float]]:
        ends = [event["t"] for event in self.of("unpaused")] + [self.ended]
        return list(
            zip((event["t"] for event in self.of("paused")), ends, strict=False)
        )


@dataclass
class Life:
    """Of one request, over all runs."""

    scheduled: list[tuple[int, float]] = field(default_factory=list)
    pages: list[tuple[int, float]] = field(default_factory=list)
    failures: list[tuple[int, float, str]] = field(default_factory=list)


class Judge:
    def __init__(
        self, world: World, served: ServedWorld, runs: list[RunRecord]
    ) -> None:
        self.world, self.served, self.runs = world, served, runs
        self.lives: defaultdict[str, Life] = defaultdict(Life)
        for run in runs:
            for event in run.events:
                if event["kind"] == "scheduled":
                    self.lives[event["url"]].scheduled.append((run.number, event["t"]))
                elif event["kind"] == "page":
                    self.lives[event["url"]].pages.append((run.number, event["t"]))
                elif event["kind"] == "failed":
                    end = (run.number, event["t"], event["detail"])
                    self.lives[event["url"]].failures.append(end)
        self.runs_settings = {name for run in world.runs for name in run.settings}
        self.listed = {
            served.url_of(page)
            for origin in world.origins
            for pages in origin.lists
            for page in pages
        }

    def faults(self) -> list[str]:
        """All that is wrong."""
        checks = [
            self.ends,
            self.processes,
            self.given_up,
            self.forbidden,
            self.asked,
            self.stats,
        ]
        checks += [self.prompt, self.beside, self.seeded, self.order]
        return [fault for check in checks for fault in check()]

    # Each run

    def processes(self) -> Iterator[str]:
        for run in self.runs:
            for event in run.of("stuck"):
                yield f"invariant: run {run.number}: {event['detail']}"
            for event in run.of("hangs"):
                yield f"hang: run {run.number} doesn't end: {event['detail']}"
            if not run.of("closed") and not run.of("hangs"):
                yield f"crash: run {run.number} ended with {run.status}: {run.log[-1500:]}"
            for event in run.of("closed"):
                if not run.stopped and event["detail"] != "finished":
                    yield f"reason: run {run.number} ended as {event['detail']}"
            if self.world.cancels is None:
                yield from (
                    f"log: run {run.number}: {text[:1500]}" for text in run.errors()
                )

    # Each request

    def ends(self) -> Iterator[str]:
        last = self.runs[-1]
        if last.of("hangs"):
            return
        for url, life in self.lives.items():
            if not life.scheduled or url in self.listed or "/sitemap" in url:
                continue
            others = [end for end in life.failures if "RobotsUnreachable" not in end[2]]
            done = len(life.pages) + len(others)
            if done > 1:
                yield f"twice: {url} ended {done} times: {life}"
            per_run = Counter(number for number, *_ in [*life.pages, *life.failures])
            if per_run and max(per_run.values()) > 1:
                yield f"twice: {url} ended twice in one run: {life}"
            lost_by_scrapy = (
                self.runs[life.scheduled[0][0]].stopped and not self.world.jobdir
            )
            if not life.pages and not life.failures and not lost_by_scrapy:
                yield f"lost: {url} never ended: {life}"
            for number, _, text in life.failures:
                if text.startswith(("RobotsDisallowed", "RobotsUnreachable")):
                    continue
                if not (
                    self.runs[number].stopped and any(word in text for word in CLOSED)
                ):
                    yield f"failure: {url}: {text}"

    def forbidden(self) -> Iterator[str]:
        """Fetched though all versions that could be known forbid it, or refused though none does."""
        for origin in self.served.origins:
            for hit in origin.pages:
                if self.world.unreachable == "allow" and not origin.plan.healthy:
                    continue
                if not self._allows(origin, hit.path, hit.at, refuses=False):
                    yield f"forbidden: {origin.root}{hit.path} was fetched at {hit.at:.2f}: {origin.asked}"
        for url, life in self.lives.items():
            for _, at, text in life.failures:
                if text.startswith("RobotsDisallowed"):
                    origin, path = self.served.origin_of(url)
                    if not self._allows(origin, path, at, refuses=True):
                        yield f"allowed: {url} was refused: {text}: {origin.asked}"

    def _allows(
        self, origin: ServedOrigin, path: str, at: float, *, refuses: bool
    ) -> bool:
        """Whether a version that could be known *at* that time allows, or *refuses*, the path."""
        section = path.split("/")[1]
        versions = [
            asked.step
            for asked in origin.asked
            if asked.step.good and asked.done is not None and asked.done <= at + 0.01
        ]
        return any((section in version.forbids) is refuses for version in versions)

    def given_up(self) -> Iterator[str]:
        for url, life in self.lives.items():
            origin, _ = self.served.origin_of(url)
            for number, at, text in life.failures:
                run = self.runs[number]
                if not text.startswith("RobotsUnreachable"):
                    continue
                if run.stopped and any(word in text for word in CLOSED):
                    if self.world.jobdir:
                        yield f"stopped: {url} isn't left to the next run: {text}"
                    continue
                why = self._why_not(origin, life, run, at, text)
                if why:
                    yield f"given up: {url} in run {number} at {at - run.began:.2f} s: {why}: {text}"

    def _why_not(
        self, origin: ServedOrigin, life: Life, run: RunRecord, at: float, text: str
    ) -> str | None:
        """Why a request shouldn't have been given up; None if it was right."""
        plan = origin.plan
        room = {"REP_HOLD_MAX_REQUESTS"} & {*self.world.settings, *self.runs_settings}
        if plan.refused or (room and "held for" not in text):
            return (
                None  # nobody there to say how often it was asked; or there is no room
            )
        if "the host is down" in text:
            return "its host is up"
        if (
            plan.healthy
            and max(step.seconds for step in plan.script) + MARGIN < self.world.timeout
        ):
            return "its origin is healthy"
        shared = self.world.shared_cache and run.number > 0
        asked = [one for one in self._asked_in(run, origin) if one.at <= at]
        if not asked and not shared:
            return "it wasn't asked in this run"
        if asked and asked[-1].step.good and self._is_over(asked[-1], at):
            return "the last answer was good"
        if "no further attempt" in text or self.world.unreachable != "hold":
            return None
        if "held for" not in text:
            return "it was never held"
        waited = sum(
            self._waited(origin, life, one, at) for one in self.runs[: run.number + 1]
        )
        least = PATIENCE_SHARE * self.world.settings["REP_HOLD_MAX_WAIT"] - SLACK
        # No attempt may follow before the time is over.
        least -= max((step.retry_after or 0) for step in plan.script)
        return f"it waited for {waited:.2f} s only" if waited < least else None

    def _is_over(self, asked: Asked, at: float) -> bool:
        return (asked.done or asked.at + self.world.timeout) + HEARD < at

    def _waited(
        self, origin: ServedOrigin, life: Life, run: RunRecord, at: float
    ) -> float:
        """Seconds of a run, until *at*, in which a request waited for its origin."""
        until = min(at, run.ended)
        known = [moment for number, moment in life.scheduled if number <= run.number]
        if not known:
            return 0.0
        since = max(run.began, min(known))
        asked = [one for one in self._asked_in(run, origin) if one.at <= until]
        for one in asked:
            if one.step.good and one.done is not None and one.done + HEARD < until:
                later = [other.at for other in asked if other.at > one.done]
                since = max(since, min(later, default=until))
        if asked and not (self.world.shared_cache and run.number > 0):
            since = max(since, asked[0].at)
        pauses = sum(
            max(0.0, min(end, until) - max(begin, since)) for begin, end in run.pauses()
        )
        return max(0.0, until - since - pauses)

    def _asked_in(self, run: RunRecord, origin: ServedOrigin) -> list[Asked]:
        following = self.runs[run.number + 1 :]
        until = following[0].began if following else float("inf")
        return [one for one in origin.asked if run.began <= one.at < until]

    # Each origin

    def asked(self) -> Iterator[str]:
        for origin in self.served.origins:
            for run in self.runs:
                yield from self._too_often(origin, run, self._asked_in(run, origin))
            if self.world.shared_cache:
                yield from self._while_fresh(origin, origin.asked, "over all runs")

    def _too_often(
        self, origin: ServedOrigin, run: RunRecord, asked: list[Asked]
    ) -> Iterator[str]:
        yield from self._while_fresh(origin, asked, f"in run {run.number}")
        if "REP_CACHE_MAX_ORIGINS" in self.world.settings:
            return
        settings, failures = self.world.settings, 0
        base, most = settings["REP_RETRY_DELAY"], settings["REP_RETRY_MAX_DELAY"]
        late = min(base, settings["REP_HOLD_MAX_WAIT"] / 4)
        given_up = [
            end[1]
            for url, life in self.lives.items()
            for end in life.failures
            if "RobotsUnreachable" in end[2] and self.served.origin_of(url)[0] is origin
        ]
        for before, after in pairwise(asked):
            answered = before.done or float("inf")
            over = min(answered, before.at + self.world.timeout)
            if any(before.at <= moment <= after.at for moment in given_up):
                continue  # nobody waited any more: the fetch was abandoned
            waited = after.at - asked[0].at
            if (
                settings.get("REP_SITEMAPS")
                and waited > settings["REP_HOLD_MAX_WAIT"] - SLACK
            ):
                continue  # so it was, if the verifier of another site's sitemap was the only one who waited
            if after.at < over - SLACK:
                yield f"at once: {origin.root} {self._times(run, before, after)}"
            if before.step.good and answered == over:
                failures = 0
                continue
            failures += 1
            lost = before.step.kind in ("drop", "reset")
            if lost and (failures == 1 or self.world.reactor == "none"):
                continue  # it is tried again at once
            delay = min(most, base * 2 ** (failures - 1))
            least = min(0.75 * delay, late)
            if before.step.retry_after is not None:
                least = max(least, min(before.step.retry_after, most))
            if after.at - over < least - SLACK:
                yield (
                    f"too soon: {origin.root} after {after.at - over:.2f} s instead of {least:.2f}: "
                    f"{self._times(run, before, after)}"
                )

    def _while_fresh(
        self, origin: ServedOrigin, asked: list[Asked], where: str
    ) -> Iterator[str]:
        if "REP_CACHE_MAX_ORIGINS" in self.world.settings:
            return  # it may have been forgotten
        for before, after in pairwise(asked):
            if not before.step.good or before.done is None:
                continue
            least = self.world.settings["REP_CACHE_MIN_TTL"]
            fresh = (
                86400.0
                if before.step.max_age is None
                else max(before.step.max_age, least)
            )
            if after.at >= before.done + fresh - 0.05:
                continue
            late = before.done > before.at + self.world.timeout
            stopped = any(
                run.stopped and before.at < run.ended < after.at for run in self.runs
            )
            if self._was_heard(origin, before.done, after.at):
                yield (
                    f"fresh: {origin.root} {where} was asked again {after.at - before.done:.2f} s "
                    f"after an answer that is fresh for {fresh:g} s: {before.step}; {after.step}"
                )
            elif not (late or stopped or after.at < before.done):
                yield (
                    f"unheard: {origin.root} {where} answered {before.done - before.at:.2f} s after it "
                    f"was asked, and was asked again {after.at - before.done:.2f} s later"
                )

    def _was_heard(self, origin: ServedOrigin, done: float, until: float) -> bool:
        """Whether the crawl has used the answer that was sent when it was *done*, before the next one was
        asked for."""
        return any(
            done - 0.05 <= event["t"] <= min(done + HEARD, until)
            and event["detail"] != "unreachable"
            for run in self.runs
            for event in run.of("resolved")
            if event["url"] == f"{origin.root}/robots.txt"
        )

    @staticmethod
    def _times(run: RunRecord, *asked: Asked) -> str:
        return f"run {run.number}: " + "; ".join(
            f"{one.step} at {one.at - run.began:.2f}"
            + (f" until {one.done - run.began:.2f}" if one.done is not None else "")
            for one in asked
        )

    def prompt(self) -> Iterator[str]:
        """Silent origins don't stop the others."""
        world = self.world
        if world.pause or world.reactor == "none" or world.handler or world.lag:
            return
        if "REP_CACHE_MAX_ORIGINS" in world.settings:
            return
        hosts = Counter(origin.host for origin in world.origins)
        silent = sum(origin.silent for origin in world.origins)
        pages = Counter(
            hit
            for origin in world.origins
            for hit in [origin.host]
            if origin.page_seconds
        )
        for url, life in self.lives.items():
            origin, _ = self.served.origin_of(url)
            plan = origin.plan
            alone = hosts[plan.host] == 1 and plan.script[0].via is None
            if not (
                plan.healthy and alone and plan.script[0].max_age is None and life.pages
            ):
                continue
            number, at = life.pages[0]
            run = self.runs[number]
            if run.of("paused"):
                continue
            own = [moment for other, moment in life.scheduled if other == number]
            since = max([run.began, *own])
            acts = len(run.of("reached"))
            work = acts * (WORK + max(one.page_seconds for one in world.origins))
            work /= min(
                world.settings["CONCURRENT_REQUESTS"],
                world.settings["CONCURRENT_REQUESTS_PER_DOMAIN"],
            )
            bound = (
                PROMPT + 1.5 * silent + work + 2 * len(pages) + plan.script[0].seconds
            )
            if at - since > bound:
                yield f"late: {url} came after {at - since:.2f} s in run {number}, not {bound:.2f}"

    def order(self) -> Iterator[str]:
        """Of an origin's held requests that an answer lets go, the urgent ones are released first."""
        for run in self.runs:
            held: dict[str, tuple[float, int]] = {}
            for event in run.of("held"):
                held[event["url"]] = (event["t"], event["priority"])
            answers = [(event["url"], event["t"]) for event in run.of("resolved")]
            last: dict[str, tuple[float, int, str]] = {}
            for event in run.of("released"):
                url, priority = event["url"], event["priority"]
                root = self.served.origin_of(url)[0].root
                since, before, other = last.get(root, (0.0, priority, ""))
                last[root] = (event["t"], priority, url)
                if url not in held or priority <= before:
                    continue
                robots = f"{root}/robots.txt"
                if any(
                    one == robots and held[url][0] < at < since for one, at in answers
                ):
                    yield f"order: run {run.number}: {url} ({priority}) came after {other} ({before})"

    # Numbers

    def stats(self) -> Iterator[str]:
        for run in self.runs:
            if not run.of("closed"):
                continue
            stats = run.stats
            for kind, stat in (
                ("held", "rep/held"),
                ("released", "rep/released"),
                ("given_up", "rep/given_up"),
            ):
                if len(run.of(kind)) != stats.get(stat, 0):
                    yield f"stats: run {run.number}: {stat} {stats.get(stat)}, {len(run.of(kind))} signals"
            came = stats.get("rep/held", 0) + run.held_before
            went = sum(
                stats.get(name, 0)
                for name in ("rep/released", "rep/given_up", "rep/handed_back")
            )
            left = (
                run.held_after - stats.get("rep/given_up", 0)
                if self.world.jobdir
                else 0
            )
            # A sitemap that is held when the crawl is stopped goes back to the spool, uncounted.
            back = 0
            if self.world.jobdir and self.world.settings.get("REP_SITEMAPS"):
                back = sum(len(origin.lists) for origin in self.world.origins)
            if abs(came - went - left) > back:
                yield (
                    f"stats: run {run.number}: {stats.get('rep/held', 0)} held + {run.held_before} "
                    f"from before, but {went} went and {left} are left: "
                    f"{ {name: stats[name] for name in stats if 'held' in name or 'given' in name} }"
                )
            if not run.stopped and stats.get("rep/held/now", 0):
                yield f"stats: run {run.number}: rep/held/now is {stats['rep/held/now']} at the end"

    def beside(self) -> Iterator[str]:
        """Direct downloads and questions."""
        for run in self.runs:
            ends = Counter(
                event["url"] for kind in ("direct", "may") for event in run.of(kind)
            )
            for kind in ("direct", "may"):
                for event in run.of(f"{kind} began"):
                    if ends[event["url"]] != 1 and not run.stopped and run.of("closed"):
                        yield f"lost: {kind} {event['url']} ended {ends[event['url']]} times"
            for event in run.of("direct"):
                origin, path = self.served.origin_of(event["url"])
                text = event["detail"]
                if text.startswith("RobotsDisallowed"):
                    if not self._allows(origin, path, event["t"], refuses=True):
                        yield f"allowed: direct {event['url']} was refused: {text}"
                elif text.startswith("RobotsUnreachable"):
                    if origin.plan.healthy and not run.stopped:
                        yield f"given up: direct {event['url']} though its origin is healthy: {text}"
                elif text != "200" and not run.stopped:
                    yield f"failure: direct {event['url']}: {text}"
            for event in run.of("may"):
                origin, path = self.served.origin_of(event["url"])
                if event["detail"] == "True":
                    if not self._allows(origin, path, event["t"], refuses=False):
                        yield f"forbidden: may_fetch({event['url']}) is True"
                elif event["detail"] == "False":
                    refused = self._allows(origin, path, event["t"], refuses=True)
                    if origin.plan.healthy and not refused and not run.stopped:
                        yield f"allowed: may_fetch({event['url']}) is False"
                elif not run.stopped:
                    yield f"failure: may_fetch({event['url']}): {event['detail']}"

    # Sitemaps

    def seeded(self) -> Iterator[str]:
        """Pages of sitemaps are fetched once: what their host doesn't list never, the others in the end."""
        if not self.world.settings.get("REP_SITEMAPS"):
            return
        hits = Counter(
            hit.path for origin in self.served.origins for hit in origin.pages
        )
        whole = all(run.of("closed") for run in self.runs)
        whole = whole and (
            self.world.jobdir or not any(run.stopped for run in self.runs)
        )
        for origin in self.served.origins:
            visited = any(
                life.pages
                and self.served.origin_of(url)[0] is origin
                and url not in self.listed
                for url, life in self.lives.items()
            )
            for number, pages in enumerate(origin.plan.lists):
                for page in pages:
                    target = self.served.origins[int(page.partition("/")[0])]
                    path = "/" + page.partition("/")[2]
                    # Without a JOBDIR, each run begins anew.
                    if hits[path] > (1 if self.world.jobdir else len(self.runs)):
                        yield f"twice: {path} of a sitemap was fetched {hits[path]} times"
                    proven = (
                        target is origin
                        or [origin.number, number] in target.plan.also_lists
                    )
                    if not proven and hits[path]:
                        yield f"unproven: {path} of origin {target.number} was fetched"
                    due = whole and visited and proven and not hits[path]
                    if (
                        due
                        and self._always_lists(origin)
                        and self._always_lists(target)
                    ):
                        section = path.split("/")[1]
                        if not any(
                            section in step.forbids for step in target.plan.script
                        ):
                            yield f"lost: {target.root}{path} of a sitemap was never fetched"

    @staticmethod
    def _always_lists(origin: ServedOrigin) -> bool:
        return all(
            step.kind == "rules" and not step.seconds for step in origin.plan.script
        )


def held_rows(jobdir: Path) -> int:
    """How many requests a JOBDIR holds for the next run."""
    import sqlite3
    from contextlib import closing

    path = jobdir / "rep-held.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM held").fetchone()[0])
