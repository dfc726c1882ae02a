"""Wrong usage of `scrapy robots`: one sentence says what is wrong, and nothing is printed to standard
output. Nothing is crawled, so no process is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.robots_command import assert_wrong_usage, robots_here

WRONG: dict[str, tuple[list[str], str]] = {
    "scheme": (["mailto:a@b.c"], "scrapy robots: not an absolute URL: 'mailto:a@b.c'"),
    "other scheme": (["s3://a/b"], "scrapy robots: no robots.txt for the scheme 's3': 's3://a/b'"),
    "no scheme": (
        ["example.com/x"],
        "scrapy robots: not an absolute URL: 'example.com/x' (try https://example.com/x)",
    ),
    "nothing": ([""], "scrapy robots: not an absolute URL: ''"),
    "port": (["http://a:b/"], "scrapy robots: invalid host or port: 'http://a:b/'"),
    "host": (["http://a b/"], "scrapy robots: invalid host or port: 'http://a b/'"),
    "no URL": ([], "error: no URL given"),
    "no URL for a file": (["--file", "robots.txt"], "error: no URL given"),
    "no file": (["--file", "none", "/"], "scrapy robots: 'none': No such file or directory"),
    "two dashes for a file": (["--file=--", "/"], "scrapy robots: '--': No such file or directory"),
    "folder": (["--file", ".", "/"], "scrapy robots: '.': Is a directory"),
    "NUL": (["--file", "a\nb", "/"], "scrapy robots: 'a\\x0ab': No such file or directory"),
    "agent": (
        ["--agent", "FooBot/1.0", "http://a/"],
        (
            "error: --agent is 'FooBot/1.0', but must be a product token such as FooBot (letters, - "
            "and _), or several joined by commas; did you mean FooBot?"
        ),
    ),
    "long": (
        ["mailto:" + "x" * 300],
        f"scrapy robots: not an absolute URL: 'mailto:{'x' * 171}…",
    ),
    "option": (["--foo", "http://a/"], "error: no such option: --foo"),
    "steering option": (["--\x1b[31m"], "error: no such option: --\\x1b[31m"),
    "steering agent": (
        ["--agent", "\u009b", "http://a/"],
        (
            "error: --agent is '\\u009b', but must be a product token such as FooBot (letters, - "
            "and _), or several joined by commas"
        ),
    ),
    "stdin twice": (["--file", "-"], "error: standard input can't be both robots.txt and URLs"),
    "setting": (
        ["http://a/", "-s", "REP_CACHE_TTL=x"],
        "scrapy robots: REP_CACHE_TTL is 'x', but must be a number of seconds, 0 or more.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_is_explained_in_one_sentence(tmp_path: Path, name: str) -> None:
    arguments, error = WRONG[name]
    (tmp_path / "robots.txt").write_text("User-agent: *\nDisallow: /\n")
    assert_wrong_usage(robots_here(tmp_path, *arguments), error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "error: --lint needs a URL, a file, or - for standard input"),
        (["none.txt"], "scrapy robots: 'none.txt': No such file or directory"),
        (["s3://a/b"], "scrapy robots: no robots.txt for the scheme 's3': 's3://a/b'"),
        (["--file", "x"], "error: --file has no effect with --lint"),
        (["--file", "", "http://a/"], "error: --file has no effect with --lint"),
        (["--sitemaps", "x"], "error: --lint and --sitemaps can't be combined"),
        (["--explain", "x"], "error: --explain has no effect with --lint"),
        (["--agent", "A", "x"], "error: --agent has no effect with --lint"),
    ],
)
def test_wrong_usage_of_lint(tmp_path: Path, arguments: list[str], error: str) -> None:
    assert_wrong_usage(robots_here(tmp_path, "--lint", *arguments), error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "error: --sitemaps needs the URL of a site"),
        (["a.b"], "scrapy robots: not an absolute URL: 'a.b' (try https://a.b)"),
        (["--explain", "http://a/"], "error: --explain has no effect with --sitemaps"),
        (
            ["http://a/", "--agent", "a", "--agent", "b"],
            "error: --sitemaps takes only one --agent",
        ),
    ],
)
def test_wrong_usage_of_sitemaps(tmp_path: Path, arguments: list[str], error: str) -> None:
    assert_wrong_usage(robots_here(tmp_path, "--sitemaps", *arguments), error)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            [],
            "scrapy robots: REP_CACHE_STORAGE is in memory, so nothing is left after a crawl",
        ),
        (
            ["-s", "REP_CACHE_STORAGE=no.such.Storage"],
            (
                "scrapy robots: REP_CACHE_STORAGE is 'no.such.Storage', which can't be imported: "
                "No module named 'no'."
            ),
        ),
        (["--drop"], "error: --drop needs hosts or URLs; '*' drops everything"),
        (["--file", "x"], "error: --file has no effect with --cache"),
        (["--lint"], "error: --lint and --cache can't be combined"),
    ],
)
def test_wrong_usage_of_cache(tmp_path: Path, arguments: list[str], error: str) -> None:
    assert_wrong_usage(robots_here(tmp_path, "--cache", *arguments), error)


def test_drop_goes_with_cache_alone(tmp_path: Path) -> None:
    done = robots_here(tmp_path, "--drop", "http://a/")
    assert_wrong_usage(done, "error: --drop needs --cache")
