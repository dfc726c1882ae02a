"""One sentence says what is wrong; standard output stays empty. Nothing is crawled, so no process."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.helpers.robots_command import assert_wrong_usage, robots_here
from tests.helpers.rows import every_row

MUST_BE = "must be a product token such as FooBot (letters, - and _), or several joined by commas"
STORAGE = "scrapy robots: REP_CACHE_STORAGE"

# What follows "scrapy robots", and what is said.
WRONG = [
    ("mailto:a@b.c", "scrapy robots: not an absolute URL: 'mailto:a@b.c' (try https://…)"),
    ("s3://a/b", "scrapy robots: no robots.txt for the scheme 's3': 's3://a/b'"),
    ("e.com/x", "scrapy robots: not an absolute URL: 'e.com/x'; did you mean https://e.com/x?"),
    ("www.e.com", "scrapy robots: not an absolute URL: 'www.e.com'; did you mean https://www.e.com?"),
    ("/x", "scrapy robots: not an absolute URL: '/x' (a path alone takes --file)"),
    ("''", "scrapy robots: not an absolute URL: '' (try https://…)"),
    ("http://a:b/", "scrapy robots: invalid host or port: 'http://a:b/'"),
    ("'http://a b/'", "scrapy robots: invalid host or port: 'http://a b/'"),
    ("mailto:" + "x" * 300, f"scrapy robots: not an absolute URL: 'mailto:{'x' * 193}…' (try https://…)"),
    ("", "error: no URL given"),
    ("--file robots.txt", "error: no URL given"),
    ("--file none /", "scrapy robots: 'none': No such file or directory"),
    ("--file . /", "scrapy robots: '.': Is a directory"),
    ("--file 'a\nb' /", "scrapy robots: 'a\\nb': No such file or directory"),
    ("--file -", "error: no URL given"),
    ("--file robots.txt x", "scrapy robots: neither a URL nor a path: 'x'; did you mean /x?"),
    ("--file robots.txt a.html", "scrapy robots: neither a URL nor a path: 'a.html'; did you mean /a.html?"),
    ("--file robots.txt ''", "scrapy robots: neither a URL nor a path: ''; did you mean /?"),
    ("--file robots.txt e.com/x", "scrapy robots: neither a URL nor a path: 'e.com/x'; did you mean https://e.com/x?"),
    ("--file robots.txt http://a:b/", "scrapy robots: invalid host or port: 'http://a:b/'"),
    ("--file robots.txt mailto:a@b.c", "scrapy robots: not an absolute URL: 'mailto:a@b.c' (try https://…)"),
    ("--file www.e.com /", "scrapy robots: 'www.e.com': No such file or directory; did you mean https://www.e.com/robots.txt?"),
    ("--agent FooBot/1.0 http://a/", f"error: --agent is 'FooBot/1.0', but {MUST_BE}; did you mean FooBot?"),
    ("--agent \u009b http://a/", f"error: --agent is '\\x9b', but {MUST_BE}"),
    ("http://a/ --spider no", "error: no such spider: 'no'"),
    ("--foo http://a/", "error: no such option: '--foo'"),
    ("--\x1b[31m", "error: no such option: '--\\x1b[31m'"),
    ("http://a/ -s REP_CACHE_TTL=x", "scrapy robots: REP_CACHE_TTL is 'x', but must be a number of seconds, 0 or more."),
    ("--csv --json /", "error: --json and --csv can't be combined"),
    ("--show --explain /", "error: --explain and --show can't be combined"),
    ("--compare a b --csv", "error: --csv has no effect on --compare"),
    ("--compare robots.txt none", "scrapy robots: 'none': No such file or directory"),
    ("--compare robots.txt robots.txt -", "error: no URL given"),
    ("--compare - -", "error: standard input can be read only once"),
    ("--lint", "error: --lint needs a URL, a file, or - for standard input"),
    ("--lint none.txt", "scrapy robots: 'none.txt': No such file or directory"),
    ("--lint e.com", "scrapy robots: 'e.com': No such file or directory; did you mean https://e.com/robots.txt?"),
    ("--lint e.com:8000/x/y", "scrapy robots: 'e.com:8000/x/y': No such file or directory; did you mean https://e.com:8000/robots.txt?"),
    ("--lint https:/e.com", "scrapy robots: 'https:/e.com': No such file or directory"),
    ("--compare robots.txt www.e.com", "scrapy robots: 'www.e.com': No such file or directory; did you mean https://www.e.com/robots.txt?"),
    ("--lint --agents-known robots.txt", "error: --agents-known has no effect on --lint"),
    ("--lint --file x", "error: --file has no effect on --lint"),
    ("--lint --file '' http://a/", "error: --file has no effect on --lint"),
    ("--lint --sitemaps x", "error: --lint and --sitemaps can't be combined"),
    ("--lint --agent A x", "error: --agent has no effect on --lint"),
    ("--fail-on error /", "error: --fail-on has no effect on verdicts"),
    ("--sitemaps", "error: no URL given"),
    ("--sitemaps http://a/ --agent a --agent b", "error: --sitemaps takes only one --agent"),
    ("--page --header 'X: y'", "error: --header needs --file"),
    ("--header 'X: y' --file x", "error: --header has no effect on verdicts"),
    ("--page --lint x", "error: --lint and --page can't be combined"),
    ("--page --file p.html http://a", "error: --page takes a URL or --file, not both"),
    ("--page --file p.html --header noindex", "error: --header is 'noindex', but must look like 'X-Robots-Tag: noindex'"),
    ("--held . x", "error: --held takes a JOBDIR and nothing else"),
    ("--held . --agent a", "error: --agent has no effect on --held"),
    ("--report", "error: --report needs a file that REP_DECISIONS has written"),
    ("--report --json x", "error: --json has no effect on --report"),
    ("--report none", "scrapy robots: none: No such file or directory"),
    ("--cache", f"{STORAGE} is in memory, so nothing is left after a crawl"),
    ("--cache -s REP_CACHE_STORAGE=no.such.Storage", f"{STORAGE} is 'no.such.Storage', which can't be used: ModuleNotFoundError: No module named 'no'."),
    ("--cache --drop", "error: --drop needs hosts or URLs; '*' drops everything"),
    ("--drop http://a/", "error: --drop has no effect on verdicts"),
]  # fmt: skip


def test_wrong_usage_is_explained_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /\n")
    (tmp_path / "p.html").write_text("<p>")
    with every_row() as row:
        for line, error in WRONG:
            with row(line):
                assert_wrong_usage(robots_here(tmp_path, *shlex.split(line)), error)
