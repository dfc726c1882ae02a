"""Scrapy's own tests, with our middleware in the place of its RobotsTxtMiddleware.

    python3 tests/run.py -e scrapys-own            those of the crawl
    python3 tests/run.py -e scrapys-own -- tests/test_engine_loop.py

They come with the source distribution of the Scrapy that is installed. They run twice with
`ROBOTSTXT_OBEY` on: with Scrapy's middleware, and with ours. What fails with ours alone is printed,
and is an error unless `EXPECTED` has a reason for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import scrapy

ROOT = Path(__file__).resolve().parent.parent
STOCK = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"

# Files of Scrapy's tests in which crawls run, or what a crawl is made of.
CRAWL = """
closespider command_crawl command_fetch command_parse command_runspider command_shell contracts
core_downloader core_scraper crawl crawler crawler_runners crawler_subprocess
downloaderslotssettings engine engine_close_spider engine_download engine_loop
engine_stop_download_bytes engine_stop_download_headers extension_throttle feedexport logstats
pipeline_crawl pipeline_files pipeline_images pipeline_media pipelines
request_attribute_binding request_cb_kwargs request_left scheduler scheduler_base signals spider
spider_crawl spider_sitemap spider_start spidermiddleware spidermiddleware_httperror
spidermiddleware_output_chain spidermiddleware_process_start spiderstate stats
downloadermiddleware downloadermiddleware_httpcache downloadermiddleware_httpproxy
downloadermiddleware_offsite downloadermiddleware_redirect downloadermiddleware_retry
"""

_CUT = "the project's own handler cuts robots.txt too, which is no answer (docs/REP.md, section 4)"

# Tests that fail with ours alone, as their names begin, and why.
EXPECTED = {
    "tests.test_crawl.TestCrawlSpider.test_bytes_received_stop_download": _CUT,
    "tests.test_crawl.TestCrawlSpider.test_headers_received_stop_download": _CUT,
    "tests.test_downloadermiddleware.": (
        "no site answers there, and one that can't be asked is not fetched (docs/REP.md, section 3)"
    ),
    "tests.test_engine_loop.TestRequestSendOrder.": (
        "what waits for robots.txt takes no download slot: more of start() is read meanwhile, and the "
        "most urgent request leaves first (docs/holding.md)"
    ),
    "tests.test_request_attribute_binding.TestCrawl.test_downloader_middleware_raise_exception": (
        "the project's own middleware fails for robots.txt too: the request fails with that as its "
        "reason (docs/REP.md, section 4)"
    ),
}


def unpack(folder: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
    ]
    what = ["--no-binary", ":all:", "--no-deps", f"scrapy=={scrapy.__version__}"]
    subprocess.run([*pip, *what, "--dest", str(folder)], check=True)
    [archive] = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


def failures(source: Path, middleware: str, arguments: list[str]) -> set[str]:
    defaults = source / "scrapy" / "settings" / "default_settings.py"
    untouched = defaults.read_text("utf-8")
    text = untouched.replace(STOCK, middleware).replace("ROBOTSTXT_OBEY = False", "")
    defaults.write_text(f"{text}\nROBOTSTXT_OBEY = True\n", "utf-8")
    report = source / "report.xml"
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        f"--junitxml={report}",
    ]
    pytest += ["-W", "ignore:Session-scoped fixtures"]  # of newer versions of pytest
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    print(f"\nWith {middleware}:", flush=True)
    try:
        subprocess.run([*pytest, *arguments], cwd=source, env=variables, check=False)
    finally:
        defaults.write_text(untouched, "utf-8")
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 (our own)
    return {
        f"{case.get('classname')}.{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }


def main(arguments: list[str]) -> int:
    chosen = arguments or [
        "-n",
        "2",
        *(f"tests/test_{name}.py" for name in CRAWL.split()),
    ]
    with tempfile.TemporaryDirectory() as folder:
        source = unpack(Path(folder))
        if not arguments:  # an older Scrapy has fewer files
            chosen = [one for one in chosen if one[0] != "t" or (source / one).exists()]
        stock = failures(source, STOCK, chosen)
        alone = sorted(failures(source, "scrapy_rep.RepMiddleware", chosen) - stock)
    print(f"\n{len(stock)} fail with Scrapy's own, too. With ours alone: {len(alone)}")
    unexpected = 0
    for name in alone:
        reason = next(
            (why for start, why in EXPECTED.items() if name.startswith(start)), None
        )
        unexpected += reason is None
        print(f"  {name}: {reason or 'unexpected'}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
