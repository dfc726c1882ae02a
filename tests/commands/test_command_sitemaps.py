"""`scrapy robots --sitemaps URL`."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.behaviours import answer, redirect
from tests.helpers.process import REACTORS, on_every_reactor
from tests.helpers.robots_command import files_in, robots, robots_crawls
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import index, urlset


@pytest.fixture
def site(sites: Sites) -> Site:
    one = sites.add()
    url = one.url
    big = urlset(url(f"/page/{n}") for n in range(2_000)).encode()
    for path, page in {
        "/robots.txt": (
            "User-agent: *\nDisallow: /private/\nDisallow: /*.pdf$\nDisallow: /secret.xml\n"
            "User-agent: ShopBot\nDisallow: /private/\n"
            f"Sitemap: {url('/index.xml')}\nSitemap: /big.xml.gz\n"
            f"Sitemap: {url('/secret.xml')}\nSitemap: /index.xml\n"
        ),
        "/index.xml": index([url("/one.xml"), url("/nested.xml"), url("/index.xml")]),
        "/one.xml": urlset([url("/a"), url("/private/b"), url("/c.pdf"), "no URL"]),
        "/nested.xml": index([url("/moved.txt")]),
        "/moved.txt": redirect("/list.txt"),
        "/list.txt": "\n".join(
            url(f"/private/{n}" if n % 2 else f"/{n}") for n in range(40)
        ),
        "/big.xml.gz": answer(gzip.compress(big), type="application/gzip"),
        "/secret.xml": urlset([url("/secret")]),
    }.items():
        one.set(path, page)
    return one


def tree_of(site: Site) -> str:
    base = site.url("")
    return f"""\
      URLs   forbidden  for *
                        {base}/robots.txt: 3 sitemaps
                          {base}/index.xml  (index of 3 sitemaps)
         3           2      {base}/one.xml  (1 entry without a URL)
                            {base}/nested.xml  (index of 1 sitemap)
        40          20        {base}/moved.txt  (redirects to {base}/list.txt)
                            {base}/index.xml  (listed above)
     2,000           0    {base}/big.xml.gz
                          {base}/secret.xml  (forbidden by line 4: Disallow: /secret.xml)
     2,043          22  total in 5 sitemaps that could be read
                    21  by line 2 of {base}/robots.txt: Disallow: /private/
                     1  by line 3 of {base}/robots.txt: Disallow: /*.pdf$
"""


@pytest.mark.process
@on_every_reactor
def test_sitemaps_are_printed_as_a_tree(
    site: Site, project: Path, reactor: str
) -> None:
    before = files_in(project)
    settings = REACTORS[reactor]
    done = robots(
        project, "--sitemaps", site.url("/any/page"), "--agent", "*", settings=settings
    )
    assert (done.status, done.err) == (1, "")
    assert done.out == tree_of(site)
    # Each was asked for once, and no page; what robots.txt forbids was not.
    assert sorted(hit.path for hit in site.requests) == [
        *[
            "/big.xml.gz",
            "/index.xml",
            "/list.txt",
            "/moved.txt",
            "/nested.xml",
            "/one.xml",
        ],
        "/robots.txt",
    ]
    assert files_in(project) == before


async def test_for_the_projects_agent(site: Site, tmp_path: Path) -> None:
    done = await robots_crawls(tmp_path, "--sitemaps", site.url("/"), "--json")
    assert (done.status, done.err) == (1, "")
    assert list(done.json[0]) == [
        *[
            "sitemap",
            "listed_in",
            "depth",
            "kind",
            "status",
            "final_url",
            "sitemaps",
            "urls",
        ],
        *[
            "forbidden",
            "foreign",
            "unjudged",
            "invalid",
            "broken",
            "rules",
            "fetched",
            "problem",
        ],
    ]
    assert [one["depth"] for one in done.json] == [1, 2, 2, 3, 2, 1, 1]
    numbers = [(one["urls"], one["forbidden"]) for one in done.json]
    assert numbers == [(0, 0), (3, 1), (0, 0), (40, 20), (0, 0), (2_000, 0), (1, 0)]
    assert (done.json[3]["kind"], done.json[3]["listed_in"]) == (
        "text",
        site.url("/nested.xml"),
    )
    assert done.json[3]["final_url"] == site.url("/list.txt")
    rule = {
        "robots_url": site.url("/robots.txt"),
        "line": 6,
        "rule": "Disallow: /private/",
    }
    assert done.json[3]["rules"] == [{**rule, "urls": 20}]


async def test_urls_of_other_hosts_are_under_their_own_rules(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sitemaps too. No more hosts are asked than the limit."""
    here, www, down = sites.add(), sites.add(), sites.add(503)
    here.set(
        "/robots.txt", f"Sitemap: {here.url('/s.xml')}\nSitemap: {www.url('/x.xml')}\n"
    )
    www.set("/robots.txt", "User-agent: *\nDisallow: /x\nDisallow: /*|\n")
    # A bar is requested as %7C, so the rule doesn't match it.
    listed = [
        www.url("/x/1"),
        www.url("/y"),
        www.url("/y|"),
        down.url("/z"),
        "ftp://a/b",
    ]
    here.set("/s.xml", urlset(listed))
    for limit, asked in ((2, 0), (100, 1)):
        monkeypatch.setattr("scrapy_rep.commands.pages._MAX_CONTACTED_ORIGINS", limit)
        www.requests.clear()
        done = await robots_crawls(tmp_path, "--sitemaps", here.url("/"), "--json")
        assert done.status == 3
        first, second = done.json
        assert [first[key] for key in ("urls", "forbidden", "unjudged", "invalid")] == [
            4,
            1,
            1,
            1,
        ]
        assert first["foreign"] == 2  # www lists no sitemap
        problem = "forbidden by line 2: Disallow: /x"
        assert (second["fetched"], second["problem"]) == (False, problem)
        assert (www.count("/robots.txt"), down.count("/robots.txt")) == (1, asked)
        assert www.count("/x.xml") == 0


async def test_private_hosts_that_a_public_site_names(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = sites.add(
        robots="Sitemap: http://internal/a.xml\nSitemap: /moved.xml\nSitemap: /b.xml\n",
        pages={
            "/moved.xml": redirect("http://127.0.0.1/c.xml"),
            "/b.xml": urlset(["http://db.internal/", "http://shop.example/"]),
        },
    )
    monkeypatch.setenv("http_proxy", proxy.url("/"))
    monkeypatch.setenv("no_proxy", "")
    done = await robots_crawls(tmp_path, "--sitemaps", "http://shop.example/", "--json")
    why = "not read: its host has a private address (see REP_PRIVATE_HOSTS)"
    problems = [line["problem"] for line in done.json]
    assert problems == [why, f"redirects to http://127.0.0.1/c.xml: {why}", None]
    assert done.json[2]["unjudged"] == 1
    assert all(hit.target.startswith("http://shop.example/") for hit in proxy.requests)


async def test_redirects_to_where_it_is_forbidden(sites: Sites, tmp_path: Path) -> None:
    there = sites.add(robots="User-agent: *\nDisallow: /\n")
    here = sites.add(robots="Sitemap: /s.xml\nSitemap: /loop.xml\nSitemap: /lost.xml\n")
    here.set("/s.xml", redirect(there.url("/s.xml")))
    here.set("/loop.xml", redirect("/loop.xml"))
    here.set("/lost.xml", redirect(None))
    done = await robots_crawls(tmp_path, "--sitemaps", here.url("/"), "--json")
    assert [line["problem"] for line in done.json] == [
        f"redirects to {there.url('/s.xml')}: forbidden by line 2: Disallow: /",
        "redirects in a loop, or more than 20 times",
        "HTTP 301 without a usable target",
    ]
    assert there.count("/s.xml") == 0
    assert here.count("/loop.xml") == 1


async def test_what_is_wrong_is_told_as_by_a_crawl(
    sites: Sites, tmp_path: Path
) -> None:
    here = sites.add()
    page = answer("<!doctype html><p>Hi", type="text/html")
    damaged = urlset([here.url("/1"), here.url("/<b>")]).replace(
        "&lt;b&gt;", "<b>x</b>"
    )
    nested = "1 sitemap not read: nested too deep"
    no_url = "not a URL that a sitemap can have"
    # What is listed, what is there; URLs, entries without one, with a damaged one; the problem.
    rows: list[tuple[str, Any, tuple[int, int, int], str | None]] = [
        ("/broken.xml", damaged, (1, 0, 1), "broken XML, line 4: an element in a URL"),
        ("/relative.xml", urlset(["/1", "/2"]), (0, 2, 0), None),
        (
            "/text.txt",
            "404 page not found",
            (0, 0, 0),
            "most of its first lines are not URLs",
        ),
        ("/empty.xml", urlset([]), (0, 0, 0), None),
        ("/gone.xml", 404, (0, 0, 0), "HTTP 404"),
        ("/page.html", page, (0, 0, 0), "HTML"),
        ("/long.txt", "https://example.com/" + "a" * 3000, (0, 0, 0), "2000"),
        ("/deep.xml", index([here.url("/deeper.xml")]), (0, 0, 0), None),
        ("/deeper.xml", index([here.url("/deepest.xml")]), (0, 0, 0), nested),
        ("mailto:x", None, (0, 0, 0), no_url),
        ("http://[", None, (0, 0, 0), no_url),
        (
            "ftp://127.0.0.1/s.xml",
            None,
            (0, 0, 0),
            "only http and https URLs can be sitemaps",
        ),
    ]
    listed = [path for path, *_ in rows if path != "/deeper.xml"]
    here.set("/robots.txt", "".join(f"Sitemap: {path}\n" for path in listed))
    for path, there, *_ in rows:
        if there is not None:
            here.set(path, there)
    settings = {"_REP_SITEMAP_MAX_DEPTH": 2, "_REP_SITEMAP_MAX_BYTES": 2000}
    asked = ("--sitemaps", here.url("/"))
    done = await robots_crawls(tmp_path, *asked, "--json", settings=settings)
    with every_row() as row:
        for (path, _, counts, problem), one in zip(rows, done.json, strict=True):
            with row(path):
                assert one["sitemap"].endswith(path)
                assert (one["urls"], one["invalid"], one["broken"]) == counts
                assert str(problem) in str(one["problem"])
    assert (done.status, done.err) == (3, "")
    assert here.count("/deepest.xml") == 0
    assert "1 entry with a damaged URL" in (await robots_crawls(tmp_path, *asked)).out


async def test_no_sitemaps_and_no_answer(sites: Sites, tmp_path: Path) -> None:
    none, gone, down = (
        sites.add(robots="User-agent: *\n"),
        sites.add(robots=404),
        sites.add(503),
    )
    done = await robots_crawls(tmp_path, "--sitemaps", none.url("/"), gone.url("/"))
    assert (done.status, done.err) == (0, "")
    assert f"{none.url('/robots.txt')}: 0 sitemaps\n" in done.out
    done = await robots_crawls(tmp_path, "--sitemaps", down.url("/"))
    assert (done.status, done.out) == (3, "")
    assert done.errors == [
        f"scrapy robots: {down.url('/robots.txt')}: unreachable: HTTP 503"
    ]
    wrong = sites.add(robots="Sitemap: /robots.txt\n")
    assert (await robots_crawls(tmp_path, "--sitemaps", wrong.url("/"))).status == 3


async def test_as_a_crawl_takes_them(sites: Sites, tmp_path: Path) -> None:
    """Up to 20 redirects are followed, and URLs count whose host lists the sitemap, or an index."""
    here, lists_index, other = sites.add(), sites.add(), sites.add()
    here.set("/robots.txt", f"Sitemap: {here.url('/index.xml')}\n")
    lists_index.set("/robots.txt", f"Sitemap: {here.url('/index.xml')}\n")
    here.set("/index.xml", index([here.url("/0")]))
    for number in range(7):
        here.set(f"/{number}", redirect(f"/{number + 1}"))
    listed = [one.url("/page") for one in (here, lists_index, other)]
    here.set("/7", urlset([*listed, f"http://me:secret@{here.host}:1/"]))
    done = await robots_crawls(tmp_path, "--sitemaps", here.url("/"))
    assert "1 on hosts that do not list it, which a crawl leaves out" in done.out
    assert f"redirects to {here.url('/7')}" in done.out
    assert "secret" not in done.out
