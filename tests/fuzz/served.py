"""The origins of a world (`tests.fuzz.worlds`), served on loopback, and what was asked of them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from tests.fuzz.worlds import Origin, Step, World
from tests.helpers.behaviours import (
    Behaviour,
    answer,
    hang_up,
    redirect,
    reset,
    silence,
)
from tests.helpers.servers import Connection, Hit, Site, Sites

ROBOTS = "/robots.txt"


@dataclass
class Asked:
    """robots.txt was asked for once. Times are those of `time.monotonic()`."""

    at: float
    step: Step
    done: float | None = None
    """When the answer, or that of a redirect's target, was sent; None: never."""


@dataclass
class PageHit:
    at: float
    path: str
    target: str = ""


class Paths(dict[str, Behaviour]):
    """For `Site.pages`: one behaviour for whatever is asked for."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    def get(self, path: str, default: Any = None) -> Behaviour:  # type: ignore[override]
        return self.behaviour


class ServedOrigin:
    def __init__(self, number: int, plan: Origin, world: ServedWorld) -> None:
        self.number, self.plan, self.world = number, plan, world
        self.asked: list[Asked] = []
        self.pages: list[PageHit] = []
        self.sitemaps: list[PageHit] = []
        self.root = ""

    def serve(self, sites: Sites, host: str) -> Site | None:
        if self.plan.refused:
            self.root = sites.refused()
            return None
        site = sites.add(host=host)
        site.pages = Paths(self._answer)
        self.root = site.url("")
        return site

    async def _answer(self, hit: Hit, connection: Connection) -> None:
        if hit.path == ROBOTS:
            script = self.plan.script
            asked = Asked(
                time.monotonic(), script[min(len(self.asked), len(script) - 1)]
            )
            self.asked.append(asked)
            if asked.step.via is not None:
                number = len(self.asked) - 1
                other = self.world.origins[asked.step.via]
                await redirect(f"{other.root}/moved/{self.number}/{number}")(
                    hit, connection
                )
                return
            await self._robots(asked, hit, connection)
        elif hit.path.startswith("/moved/"):
            _, _, origin, number = hit.path.split("/")
            served = self.world.origins[int(origin)]
            await served._robots(served.asked[int(number)], hit, connection)
        elif hit.path.startswith("/sitemap"):
            self.sitemaps.append(PageHit(time.monotonic(), hit.path))
            pages = self.plan.lists[
                int(hit.path.removeprefix("/sitemap").removesuffix(".xml"))
            ]
            body = "".join(
                f"<url><loc>{self.world.url_of(page)}</loc></url>" for page in pages
            )
            text = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{body}</urlset>'
            await answer(text, type="application/xml")(hit, connection)
        else:
            self.pages.append(PageHit(time.monotonic(), hit.path))
            await asyncio.sleep(self.plan.page_seconds)
            await answer("<p>a page", type="text/html")(hit, connection)

    async def _robots(self, asked: Asked, hit: Hit, connection: Connection) -> None:
        step = asked.step
        await asyncio.sleep(step.seconds)
        if step.kind == "silent":
            await silence()(hit, connection)
            return
        headers = []
        if step.max_age is not None:
            headers.append(("Cache-Control", f"max-age={step.max_age:g}"))
        if step.retry_after is not None:
            headers.append(("Retry-After", str(step.retry_after)))
        asked.done = time.monotonic()
        match step.kind:
            case "rules":
                await answer(self.rules(step), headers=headers)(hit, connection)
            case "missing":
                await answer("none", 404, headers)(hit, connection)
            case "drop":
                await hang_up()(hit, connection)
            case "reset":
                await reset()(hit, connection)
            case status:
                await answer("later", int(status), headers)(hit, connection)

    def rules(self, step: Step) -> str:
        lines = [
            "User-agent: *",
            *(f"Disallow: /{section}/" for section in step.forbids),
        ]
        lines += [
            f"Sitemap: {self.root}/sitemap{n}.xml" for n in range(len(self.plan.lists))
        ]
        for other, number in self.plan.also_lists:
            lines.append(
                f"Sitemap: {self.world.origins[other].root}/sitemap{number}.xml"
            )
        return "\n".join(lines) + "\n"


class ServedWorld:
    def __init__(self, world: World, sites: Sites) -> None:
        hosts = {origin.host: sites.new_host() for origin in world.origins}
        self.origins = [ServedOrigin(*pair, self) for pair in enumerate(world.origins)]
        for origin in self.origins:
            origin.serve(sites, hosts[origin.plan.host])

    def url_of(self, page: str) -> str:
        number, _, path = page.partition("/")
        return f"{self.origins[int(number)].root}/{path}"

    def origin_of(self, url: str) -> tuple[ServedOrigin, str]:
        for origin in self.origins:
            if url.startswith(f"{origin.root}/"):
                return origin, url.removeprefix(origin.root)
        raise ValueError(url)
