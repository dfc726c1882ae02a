"""Random worlds for whole crawls: origins with scripts of answers for robots.txt, what a spider does
there, when it is stopped, and under which settings. A seed determines a world."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

GOOD = frozenset({"rules", "missing"})
"""Kinds of steps that are an answer; the others are failures."""
SECTIONS = ("a", "b", "c")
"""First parts of paths. Rules forbid some of them."""
TIMEOUTS = (1.5, 3.0, 8.0)
STOPS = ("sigint", "close")


@dataclass
class Step:
    """What robots.txt answers once. The last step of a script is repeated."""

    kind: str
    """rules, missing, 503, 429, silent, drop or reset; "refused" is a port that nobody listens at."""
    seconds: float = 0.0
    """Until it answers."""
    forbids: list[str] = field(default_factory=list)
    """Sections."""
    max_age: float | None = None
    retry_after: int | None = None
    via: int | None = None
    """The origin that a redirect leads to, and that answers as this step says."""

    @property
    def good(self) -> bool:
        return self.kind in GOOD

    def __str__(self) -> str:
        parts = [self.kind]
        parts += [f"forbids {'+'.join(self.forbids)}"] if self.forbids else []
        parts += [f"{self.seconds:g} s"] if self.seconds else []
        parts += [f"max-age {self.max_age:g}"] if self.max_age is not None else []
        parts += [f"Retry-After {self.retry_after}"] if self.retry_after else []
        parts += [f"via {self.via}"] if self.via is not None else []
        return " ".join(parts)


@dataclass
class Origin:
    host: int
    """Origins with the same number share an address, and so a download slot."""
    script: list[Step]
    page_seconds: float = 0.0
    lists: list[list[str]] = field(default_factory=list)
    """Its sitemaps: for each, pages as "origin number, a slash and a path"."""
    also_lists: list[list[int]] = field(default_factory=list)
    """Sitemaps of other origins that its robots.txt names: origin, number."""

    @property
    def refused(self) -> bool:
        return self.script[0].kind == "refused"

    @property
    def healthy(self) -> bool:
        return all(step.good for step in self.script)

    @property
    def silent(self) -> bool:
        return any(step.kind == "silent" for step in self.script)


@dataclass
class Act:
    at: float
    """Seconds after the spider has started; *start()* may be later."""
    kind: str
    """request, direct (a download past the scheduler), may (may_fetch), pause."""
    origin: int = 0
    path: str = ""
    priority: int = 0
    seconds: float = 0.0
    then: str = ""
    """What its callback requests: an origin's number, a slash and a path."""


@dataclass
class Run:
    acts: list[Act]
    stop_at: float | None = None
    stop: str = "sigint"
    settings: dict[str, Any] = field(default_factory=dict)
    """Of this run alone."""


@dataclass
class World:
    seed: int
    reactor: str
    origins: list[Origin]
    runs: list[Run]
    settings: dict[str, Any]
    jobdir: bool = False
    shared_cache: bool = False
    handler: str = ""
    """What a handler of robots_resolved does: "slow", "downloads" (from the same origin)."""
    cancels: int | None = None
    """The origin whose first robots.txt request the project's own code cancels."""
    shape: str = ""
    """Which method of Maker made it."""
    lag: float = 0.0
    """Seconds for which a middleware of the project's keeps each page, between the gate and ours."""

    @property
    def timeout(self) -> float:
        """Seconds after which a fetch of robots.txt has failed."""
        longest = max(
            self.settings["REP_HOLD_MAX_WAIT"], self.settings["_REP_HOLD_GRACE"]
        )
        return float(min(self.settings["REP_DOWNLOAD_TIMEOUT"], 0.9 * longest))

    @property
    def pause(self) -> float:
        """Seconds between two requests of a download slot, at most."""
        names = ("DOWNLOAD_DELAY", "AUTOTHROTTLE_MAX_DELAY")
        return float(max(self.settings.get(name, 0.0) for name in names))

    @property
    def unreachable(self) -> str:
        return str(self.settings.get("REP_UNREACHABLE", "hold"))

    @property
    def limit(self) -> float:
        """Seconds within which any of its runs ends by itself."""
        seconds = (
            2 * self.settings["REP_HOLD_MAX_WAIT"]
            + 2 * self.settings["REP_RETRY_DELAY"]
        )
        seconds += 2 * self.timeout * sum(origin.silent for origin in self.origins)
        seconds += self.settings["_REP_HOLD_GRACE"]
        acts = [act for run in self.runs for act in run.acts]
        pages = (
            len(acts)
            + sum(bool(act.then) for act in acts)
            + sum(len(page) for origin in self.origins for page in origin.lists)
        )
        pages += 3 * len(self.origins)
        pause = self.pause
        seconds += pages * (pause + max(origin.page_seconds for origin in self.origins))
        seconds += (
            max((act.at + act.seconds for act in acts), default=0.0) + 5 * self.lag
        )
        return float(seconds + 45.0)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"seed {self.seed} ({self.shape}): {self.reactor} reactor"]
        lines[0] += ", JOBDIR" * self.jobdir + ", shared cache" * self.shared_cache
        if self.handler:
            lines[0] += f", robots_resolved handler: {self.handler}"
        if self.lag:
            lines[0] += f", a middleware keeps pages for {self.lag:g} s"
        if self.cancels is not None:
            lines[0] += f", first fetch of {self.cancels} is cancelled by a middleware"
        lines.append(
            "  " + ", ".join(f"{name}={value}" for name, value in self.settings.items())
        )
        for number, origin in enumerate(self.origins):
            script = "; ".join(map(str, origin.script))
            text = f"  origin {number} (host {origin.host}): {script}"
            if origin.page_seconds:
                text += f" | pages take {origin.page_seconds:g} s"
            if origin.lists:
                text += f" | sitemaps {origin.lists}"
            if origin.also_lists:
                text += f" | lists {origin.also_lists} too"
            lines.append(text)
        for number, run in enumerate(self.runs):
            end = (
                f"{run.stop} at {run.stop_at:g} s"
                if run.stop_at is not None
                else "to its end"
            )
            groups: dict[tuple[str, int, float], int] = {}
            for act in run.acts:
                key = (act.kind, act.origin, round(act.at, 1))
                groups[key] = groups.get(key, 0) + 1
            what = ", ".join(
                f"{kind} {count}x{origin}@{at:g}"
                for (kind, origin, at), count in groups.items()
            )
            changed = "".join(
                f", {name}={value}" for name, value in run.settings.items()
            )
            lines.append(f"  run {number}, {end}{changed}: {what}")
        return "\n".join(lines)


class Maker:
    """Makes one world."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.paths = 0

    def may(self, probability: float) -> bool:
        return self.random.random() < probability

    def path(self) -> str:
        self.paths += 1
        return f"/{self.random.choice(SECTIONS)}/{self.paths}"

    def good(self, **more: Any) -> Step:
        if self.may(0.4):
            return Step("missing", **more)
        return Step(
            "rules",
            forbids=self.random.sample(SECTIONS, self.random.randint(0, 2)),
            **more,
        )

    def script(self) -> list[Step]:
        choose = self.random.choice
        failures = self.random.randint(1, 3)
        match choose(
            ["steady"] * 4
            + ["outage"] * 3
            + ["short"] * 2
            + ["dead"] * 2
            + ["silent"] * 2
            + ["drop"]
        ):
            case "steady":
                return [self.good(seconds=choose([0.0, 0.0, 0.1, 0.3]))]
            case "outage":
                hint = choose([None, None, 1, 2])
                bad = Step(choose(["503", "429"]), retry_after=hint)
                return [bad] * failures + [self.good(seconds=choose([0.0, 0.0, 0.3]))]
            case "short":  # valid for a short time, and what comes next may differ
                between = [Step("503")] * choose([0, 1, 1, 2])
                return [
                    self.good(max_age=1.0),
                    *between,
                    self.good(max_age=choose([1.0, 60.0])),
                ]
            case "dead":
                return [Step(choose(["503", "refused", "drop", "503"]))]
            case "silent":
                silent = [Step("silent")] * failures
                return silent if self.may(0.5) else [*silent[:2], self.good()]
            case _:
                return [Step(choose(["drop", "reset"]))] * failures + [self.good()]

    def origins(self) -> list[Origin]:
        origins: list[Origin] = []
        for number in range(self.random.randint(2, 6)):
            twin = origins and self.may(0.25)
            host = self.random.choice(origins).host if twin else number
            seconds = self.random.choice([0.0, 0.0, 0.0, 0.1, 0.3])
            origins.append(Origin(host, self.script(), seconds))
        if not any(origin.healthy for origin in origins):
            origins.append(Origin(len(origins), [self.good()]))
        servers = [
            number for number, origin in enumerate(origins) if not origin.refused
        ]
        for number, origin in enumerate(origins):
            if not origin.refused and self.may(0.12):
                others = [other for other in servers if other != number]
                if others:
                    via = self.random.choice(others)
                    for step in origin.script:
                        if step.kind not in ("drop", "reset"):
                            step.via = via
        return origins

    def settings(self) -> dict[str, Any]:
        choose = self.random.choice
        settings: dict[str, Any] = {
            "CONCURRENT_REQUESTS": choose([2, 4, 8, 16]),
            "CONCURRENT_REQUESTS_PER_DOMAIN": choose([1, 2, 8]),
            "_REP_HOLD_GRACE": choose([0.05, 0.05, 0.5, 4.0]),
            "REP_RETRY_DELAY": choose([0.1, 0.1, 0.5, 2.0]),
            "REP_HOLD_MAX_WAIT": choose([1.5, 2.0, 3.0]),
            "REP_DOWNLOAD_TIMEOUT": choose(TIMEOUTS),
            "REP_CACHE_MIN_TTL": 0.5,
        }
        settings["REP_RETRY_MAX_DELAY"] = (
            choose([1, 2, 4]) * settings["REP_RETRY_DELAY"]
        )
        if self.may(0.4):
            settings["DOWNLOAD_DELAY"] = choose([0.1, 0.2, 0.3])
        elif self.may(0.1):
            settings |= {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.2}
            settings["AUTOTHROTTLE_MAX_DELAY"] = 0.4
        return settings

    def acts(self, origins: list[Origin], pause: float) -> list[Act]:
        """Of one run."""
        acts: list[Act] = []
        most = 25 if pause else 60
        for number, _ in enumerate(origins):
            for _ in range(self.random.choice([0, 1, 1, 2])):
                at = self.random.choice([0.0, 0.0, round(self.random.uniform(0, 4), 2)])
                count = self.random.choice([1, 3, 5, 10, most])
                priority = self.random.choice([0, 0, 0, 5, -5])
                spread = self.random.choice([0.0, 0.0, 0.05])
                for index in range(count):
                    moment = at + index * spread
                    then = ""
                    if self.may(0.1):
                        then = f"{self.random.randrange(len(origins))}{self.path()}"
                    act = Act(
                        moment, "request", number, self.path(), priority, then=then
                    )
                    acts.append(act)
                    if self.may(0.1):
                        priority = self.random.choice([0, 5, -5])
            if self.may(0.15):
                kind = self.random.choice(["direct", "may"])
                acts += [Act(self.random.uniform(0, 4), kind, number, self.path())]
        return sorted(acts, key=lambda act: act.at)

    def lists(self, origins: list[Origin]) -> None:
        """Let robots.txt files list sitemaps, some with pages of another origin."""
        able = [number for number, origin in enumerate(origins) if not origin.refused]
        for number in able:
            steps = origins[number].script
            if not any(step.kind == "rules" for step in steps) or self.may(0.4):
                continue
            other = self.random.choice(able)
            pages = [
                f"{number}{self.path()}" for _ in range(self.random.choice([0, 2, 5]))
            ]
            pages += [
                f"{other}{self.path()}" for _ in range(self.random.choice([0, 1, 3]))
            ]
            if pages:
                origins[number].lists.append(pages)
                if self.may(0.6):
                    origins[other].also_lists.append([number, 0])

    def world(self) -> World:
        make = self.random.choice(
            [self.any_world] * 10
            + [self.slot_queue, self.last_attempt, self.resume, self.outage_again]
            + [self.cross_host, self.forgotten]
        )
        world = make()
        world.shape = make.__name__
        if self.may(0.05) and not world.jobdir:
            world.handler = self.random.choice(["slow", "downloads"])
        if self.may(0.1):
            world.lag = self.random.choice([0.05, 0.3])
        if self.may(0.04):
            world.cancels = self.random.randrange(len(world.origins))
        return world

    def any_world(self) -> World:
        origins, settings = self.origins(), self.settings()
        jobdir = self.may(0.5)
        pause = settings.get(
            "DOWNLOAD_DELAY", settings.get("AUTOTHROTTLE_MAX_DELAY", 0.0)
        )
        if self.may(0.3):
            settings["REP_SITEMAPS"] = True
            self.lists(origins)
        runs = [
            Run(self.acts(origins, pause)) for _ in range(self.random.choice([1, 2, 3]))
        ]
        for run in runs if jobdir else runs[:1]:
            if self.may(0.8 if jobdir else 0.2):
                run.stop_at = round(self.random.uniform(0.3, 3.5), 2)
                run.stop = self.random.choice(STOPS)
        if jobdir:
            runs[-1].stop_at = None
        elif not (shared := self.may(0.3)):
            runs = runs[:1]
        if self.may(0.1):
            settings["REP_UNREACHABLE"] = self.random.choice(["drop", "allow"])
        if self.may(0.1):
            settings["REP_HOLD_MAX_REQUESTS"] = self.random.choice([10, 30, 60])
            if jobdir and self.may(0.5):
                runs[-1].settings["REP_HOLD_MAX_REQUESTS"] = self.random.choice(
                    [5, 200]
                )
        if self.may(0.1):
            settings["REP_CACHE_MAX_ORIGINS"] = self.random.choice([1, 2])
        if self.may(0.1):
            at = self.random.uniform(0, 2)
            runs[0].acts.append(
                Act(at, "pause", seconds=self.random.choice([1.0, 3.0]))
            )
            runs[0].acts.sort(key=lambda act: act.at)
        return self.of(
            origins,
            runs,
            settings,
            jobdir,
            shared=jobdir and self.may(0.4) or not jobdir and shared,
        )

    def of(
        self,
        origins: list[Origin],
        runs: list[Run],
        settings: dict[str, Any],
        jobdir: bool,
        *,
        shared: bool = False,
    ) -> World:
        reactor = self.random.choice(["asyncio", "asyncio", "select", "none"])
        return World(self.seed, reactor, origins, runs, settings, jobdir, shared)

    def many(self, origin: int, count: int, at: float = 0.0) -> list[Act]:
        return [Act(at, "request", origin, self.path()) for _ in range(count)]

    # Shapes that chance alone makes seldom

    def slot_queue(self) -> World:
        """Pages of one origin fill the download slot that another origin's robots.txt needs."""
        settings = self.settings()
        settings["DOWNLOAD_DELAY"] = self.random.choice([0.2, 0.3])
        settings["CONCURRENT_REQUESTS"] = self.random.choice([8, 16])
        settings["REP_HOLD_MAX_WAIT"] = self.random.choice([1.5, 2.0])
        origins = [
            Origin(0, [self.good()]),
            Origin(0, [self.good()]),
            Origin(1, self.script()),
        ]
        acts = (
            self.many(0, 1)
            + self.many(0, 25, 0.5)
            + self.many(1, 5, self.random.uniform(1, 2))
        )
        acts += self.many(2, 3)
        return self.of(
            origins,
            [Run(sorted(acts, key=lambda act: act.at))],
            settings,
            self.may(0.3),
        )

    def last_attempt(self) -> World:
        """The time to wait is over before the next attempt is due."""
        settings = self.settings()
        settings["DOWNLOAD_DELAY"] = self.random.choice([0.1, 0.2, 0.3])
        settings["REP_RETRY_DELAY"] = self.random.choice([2.5, 3.0])
        settings["REP_RETRY_MAX_DELAY"] = 4.0
        settings["REP_HOLD_MAX_WAIT"] = 1.5
        bad = Step("503")
        script = [bad, self.good(), *([bad, self.good()] if self.may(0.5) else [])]
        origins = [Origin(0, script), Origin(1, self.script())]
        acts = self.many(0, self.random.randint(15, 25)) + self.many(1, 3)
        return self.of(origins, [Run(acts)], settings, self.may(0.3))

    def outage_again(self) -> World:
        """It fails, answers for a short time, and fails again while requests leave at their pace."""
        settings = self.settings()
        settings["DOWNLOAD_DELAY"] = self.random.choice([0.2, 0.3])
        settings["REP_RETRY_DELAY"] = 0.2
        settings["REP_RETRY_MAX_DELAY"] = 0.8
        bad, age = Step("503"), self.random.choice([1.0, 2.0])
        script = [bad, Step("missing", max_age=age), bad, Step("missing", max_age=60.0)]
        origins = [
            Origin(0, script if self.may(0.7) else script[1:]),
            Origin(1, self.script()),
        ]
        acts = self.many(0, self.random.randint(15, 25)) + self.many(1, 3)
        return self.of(origins, [Run(acts)], settings, self.may(0.3))

    def resume(self) -> World:
        """A run leaves many held requests of a silent origin to the next one."""
        settings = self.settings()
        settings.pop("DOWNLOAD_DELAY", None)
        settings["CONCURRENT_REQUESTS"] = self.random.choice([2, 4])
        settings["REP_HOLD_MAX_WAIT"] = 12.0
        settings["REP_DOWNLOAD_TIMEOUT"] = 8.0
        settings["_REP_HOLD_GRACE"] = 0.05
        # Silent until both runs have begun.
        script = [Step("silent")] * 2 + [self.good()]
        origins = [
            Origin(0, script),
            Origin(1, [self.good()]),
            Origin(2, [self.good()]),
        ]
        count = self.random.choice([20, 40, 60])
        first = Run(
            self.many(0, count) + self.many(1, 3), 3.5, self.random.choice(STOPS)
        )
        second = Run(self.many(1, 3) + self.many(2, 5) + self.many(0, 2, 0.5))
        return self.of(origins, [first, second], settings, True)

    def forgotten(self) -> World:
        """An origin is forgotten while its pages are between the gate and our middleware, and can't be
        asked again when the crawl is stopped."""
        settings = self.settings()
        settings.pop("DOWNLOAD_DELAY", None)
        settings["REP_CACHE_MAX_ORIGINS"] = 1
        settings["REP_HOLD_MAX_WAIT"] = 3.0
        script = [self.good(), Step(self.random.choice(["silent", "503"])), self.good()]
        origins = [
            Origin(0, script),
            Origin(1, [self.good()]),
            Origin(2, self.script()),
        ]
        acts = (
            self.many(0, 1)
            + self.many(0, 3, 0.5)
            + self.many(1, 3, 0.7)
            + self.many(2, 2, 1.0)
        )
        first = Run(
            acts, self.random.choice([1.2, 1.5, 2.5]), self.random.choice(STOPS)
        )
        world = self.of(origins, [first, Run(self.many(1, 2))], settings, True)
        world.lag = 0.4
        return world

    def cross_host(self) -> World:
        """Pages of another host wait for its robots.txt, as do requests of the spider's own."""
        settings = self.settings()
        settings["REP_SITEMAPS"] = True
        settings["REP_RETRY_DELAY"] = wait = self.random.choice([1.0, 2.0])
        settings["REP_RETRY_MAX_DELAY"] = 2 * wait
        settings["REP_HOLD_MAX_WAIT"] = 1.5 * wait
        settings["REP_DOWNLOAD_TIMEOUT"] = 8.0
        settings["_REP_HOLD_GRACE"] = self.random.choice([0.05, 0.5, 5.0, 5.0])
        settings.pop("DOWNLOAD_DELAY", None)
        slow = self.good(seconds=wait)
        bad = Step("503", retry_after=int(wait))
        script = self.random.choice([[bad, slow], [slow], [Step("silent"), slow]])
        origins = [Origin(0, [Step("rules")]), Origin(1, script)]
        origins[0].lists.append(
            [f"0{self.path()}", f"1{self.path()}", f"1{self.path()}"]
        )
        if self.may(0.5):
            origins[1].also_lists.append([0, 0])
        acts = self.many(0, 1) + self.many(1, 1, self.random.uniform(0.8, 1.7) * wait)
        return self.of(origins, [Run(acts)], settings, self.may(0.3))


def world_of(seed: int) -> World:
    return Maker(seed).world()
