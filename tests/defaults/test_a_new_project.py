"""What README.md promises, as its readers get it: `scrapy startproject`, the settings that README.md
names, real processes, Scrapy's defaults. All other tests switch something off or make it quick, which
may hide a fault. Each test starts its processes at once, since they mostly wait."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.behaviours import RULES, in_turn, silence
from tests.helpers.held import origin_of
from tests.helpers.process import environment
from tests.helpers.scrapy_process import PATIENCE, ScrapyProcess
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset

pytestmark = [pytest.mark.process, pytest.mark.slow]
SPIDER = """
import scrapy

class ShopSpider(scrapy.Spider):
    name = "shop"

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = start.split()

    def parse(self, response):
        self.logger.info("Fetched %s", response.url)
"""


class ProjectProcess(ScrapyProcess):
    def __init__(self, project: Path, *arguments: str) -> None:
        folder = project.parent
        self._output = folder / f"{len(list(folder.iterdir()))}.log"
        self._output.touch()
        super().__init__(
            arguments,
            cwd=project if project.exists() else folder,
            output=self._output,
            # Where Scrapy's remote control writes a file.
            variables=environment(XDG_STATE_HOME=str(folder / "state")),
        )

    @property
    def output(self) -> str:
        return self._output.read_text("utf-8", errors="replace")

    def wait_for(self, words: str) -> None:
        until = time.monotonic() + PATIENCE
        while words not in self.output:
            assert time.monotonic() < until and self.exitcode is None, self.output
            time.sleep(0.02)

    @property
    def errors(self) -> list[str]:
        """What it logged at ERROR level. The telnet console, for which other processes of this machine may
        have left no port (it tries 51), is not ours."""
        records = re.split(r"^(?=\d{4}-\d\d-\d\d )", self.output, flags=re.MULTILINE)
        return [
            record
            for record in records
            if " ERROR: " in record and "TelnetConsole.start_listening" not in record
        ]

    def end(self, status: int = 0) -> str:
        """Wait for the end with this exit status. Returns the output."""
        assert self.wait() == status, self.output
        assert "scrapy_rep/" not in self.output, self.output
        return self.output


def as_readme_says(settings: str) -> str:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    addon = re.search(r'`("scrapy_rep\.Addon": 300)` to `ADDONS`', readme)
    name = re.search(r"^USER_AGENT = .*$", readme, re.MULTILINE)
    assert addon and name
    if re.search("^ADDONS = {}$", settings, re.MULTILINE):  # since Scrapy 2.19
        settings = settings.replace("ADDONS = {}", f"ADDONS = {{{addon[1]}}}")
    else:
        settings += f"\nADDONS = {{{addon[1]}}}\n"
    return f"{settings}\n{name[0]}\n"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("defaults") / "shop"
    ProjectProcess(folder, "startproject", "shop").end()
    settings = folder / "shop" / "settings.py"
    settings.write_text(as_readme_says(settings.read_text("utf-8")), "utf-8")
    (folder / "shop" / "spiders" / "goods.py").write_text(SPIDER, "utf-8")
    return folder


@pytest.fixture
def scrapy(project: Path) -> Iterator[Callable[..., ProjectProcess]]:
    """`scrapy("crawl", "shop", …)` starts a process, which does not outlive the test."""
    started: list[ProjectProcess] = []

    def start(*arguments: str) -> ProjectProcess:
        started.append(ProjectProcess(project, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def crawl_of(*urls: str, **settings: str) -> list[str]:
    line = ["crawl", "shop", "-a", f"start={' '.join(urls)}"]
    return line + [part for item in settings.items() for part in ("-s", "=".join(item))]


def fetched(output: str) -> list[str]:
    return sorted(re.findall(r"INFO: Fetched (\S+)", output))


@pytest.mark.scrapy_api
def test_a_crawl_and_everything_that_looks_at_a_site(
    sites: Sites, project: Path, scrapy: Callable[..., ProjectProcess]
) -> None:
    site, away = sites.add(robots=RULES), sites.add(robots=in_turn(503, RULES))
    listing, gone = sites.add(), sites.refused()
    listing.set("/robots.txt", f"{RULES}Sitemap: {listing.url('/sitemap.xml')}\n")
    listing.set("/sitemap.xml", urlset([listing.url("/listed")]))
    wanted = [site.url("/page"), away.url("/page")]
    refused = [site.url("/private"), away.url("/private")]
    plain = scrapy(*crawl_of(*wanted, *refused, REP_REPORT="robots.html"))
    seeded = scrapy(*crawl_of(listing.url("/"), REP_SITEMAPS="True"))
    others = [
        (scrapy("robots", site.url("/private")), 1, "line 2: Disallow: /private"),
        (scrapy("robots", site.url("/page")), 0, "allowed"),
        (scrapy("robots", f"{gone}/"), 3, "refused"),
        (
            scrapy("shell", "-c", "print('got', response)", site.url("/private")),
            0,
            "got None",
        ),
        (scrapy("fetch", "--nolog", site.url("/shown")), 0, "a page"),
    ]
    log = plain.end()
    assert fetched(log) == sorted(wanted)
    assert (
        "Obeying robots.txt as FooBot. While it is unreachable, requests are held"
        in log
    )
    assert log.count("(line 2: Disallow: /private, group *): <GET ") == 2
    assert (
        f"Holding requests to {origin_of(away)} until its robots.txt can be fetched"
        in log
    )
    # On a slow machine, the other site's wait for a first answer, too.
    assert re.search(
        r"^Requests: 2 allowed, 2 forbidden, [2-4] held", log, re.MULTILINE
    )
    page = (project / "robots.html").read_text("utf-8")
    assert "robots.txt in the crawl of <bdi>shop</bdi>" in page
    assert fetched(seeded.end()) == [listing.url("/"), listing.url("/listed")]
    for process, status, words in others:
        assert words in process.end(status)
    assert site.count("/private") == away.count("/private") == 0
    agents = {hit.header("User-Agent") for hit in site.requests}
    assert agents == {"FooBot/1.0 (+https://foo.example/bot)"}


def test_a_wrong_setting_ends_with_status_1(
    sites: Sites, project: Path, scrapy: Callable[..., ProjectProcess]
) -> None:
    site = sites.add()
    wrong = ("-s", "REP_RETRY_DELAY=often")
    jobdir = project / "wrong"
    crawled = scrapy(*crawl_of(site.url("/"), JOBDIR=str(jobdir)), *wrong)
    run = scrapy(
        "runspider", "shop/spiders/goods.py", "-a", f"start={site.url('/')}", *wrong
    )
    for process in (crawled, run):
        log = process.end(1)
        assert "REP_RETRY_DELAY is 'often', but must be a number of seconds" in log
        assert "Spider closed (rep_settings_error)" in log
        assert len(process.errors) == 1
    # The remote control has ended too.
    assert list((project.parent / "state").rglob("*.json")) == []
    assert site.requests == []
    # Nothing is lost: what Scrapy had scheduled when it closed its queue, that has. If that was nothing yet, the
    # next run begins anew.
    state = jobdir / "requests.queue" / "active.json"
    is_on_disk = state.exists() and json.loads(state.read_text())
    start = () if is_on_disk else (site.url("/"),)
    again = scrapy(*crawl_of(*start, JOBDIR=str(jobdir)))
    assert fetched(again.end()) == [site.url("/")], crawled.output


def test_ctrl_c_keeps_what_is_held(
    sites: Sites, tmp_path: Path, scrapy: Callable[..., ProjectProcess]
) -> None:
    """On disk with a JOBDIR, for the next run; without one, the crawl ends as soon."""
    down, silent = sites.add(robots=503), sites.add(robots=silence())
    held = {
        site: [site.url(f"/page{number}") for number in range(2)]
        for site in (down, silent)
    }
    jobs = {site: str(tmp_path / str(site.port)) for site in held}
    running = [scrapy(*crawl_of(*held[site], JOBDIR=job)) for site, job in jobs.items()]
    running.append(scrapy(*crawl_of(*held[down])))
    for process in running:
        process.wait_for("Holding requests to")
        process.send_signal(signal.SIGINT)  # Ctrl-C, once
    for process in running:
        log = process.end()
        assert "Spider closed (shutdown)" in log
        assert process.errors == []
    for site in held:
        site.set("/robots.txt", RULES)
    # Without start requests: what there is was kept.
    again = {site: scrapy(*crawl_of(JOBDIR=job)) for site, job in jobs.items()}
    assert {site: fetched(process.end()) for site, process in again.items()} == held
