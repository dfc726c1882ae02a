"""`scrapy robots --compare OLD NEW [URL…]`. Examples of docs/check.md test more."""

from __future__ import annotations

import hashlib
from pathlib import Path

from scrapy_rep.protocol.syntax import cut
from tests.helpers.robots_command import assert_wrong_usage, robots_here
from tests.helpers.rows import every_row
from tests.helpers.scrapy_process import Done

RULES = """\
User-agent: *
Disallow: /cart
Allow: /cart/help

User-agent: GPTBot
Disallow: /

User-agent: bingbot
Crawl-delay: 5
"""


def compare(folder: Path, *arguments: str, new: str, stdin: bytes = b"") -> Done:
    (folder / "n.txt").write_text(new, encoding="utf-8")
    done = robots_here(folder, "--compare", "r.txt", "n.txt", *arguments, stdin=stdin)
    assert done.err == ""
    return done


def test_what_changes_from_one_file_to_another(folder: Path) -> None:
    new = RULES.replace("GPTBot", "CCBot")
    changes = compare(folder, "-", "--json", new=new, stdin=b"/x\n").json
    found = [(one["agent"], one["old"]["line"], one["new"]["line"]) for one in changes]
    assert found == [("GPTBot", 6, None), ("CCBot", None, 6)]
    line, *_ = compare(folder, "--json", new=new).json
    assert [*line] == ["change", "source", "line", "text", "group"]
    assert [*line.values()] == ["removed", "r.txt", 5, "User-agent: GPTBot", "GPTBot"]
    # Of a long file, what counts.
    long = "User-agent: GPTBot\n" + "#\n" * 300_000
    (data,) = compare(
        folder, "/cart/help", "--json", "--agent", "GPTBot", new=long
    ).json
    assert data["new"]["sha256"] == hashlib.sha256(cut(long.encode())).hexdigest()


def test_urls_are_counted_for_each_crawler(folder: Path) -> None:
    """Those with equal numbers share a line."""
    new = "User-agent: *\nDisallow: /\nAllow: /cart/$\nUser-agent: GPTBot\nUser-agent: a\nAllow: /x\n"
    urls = ["/x", "/y", "/cart/", "/cart/help"]
    shown = compare(folder, *urls, new=new).out.splitlines()
    assert shown[-5:] == [
        "# GPTBot: 4 URLs disallowed -> allowed",
        "# bingbot: 3 URLs allowed -> disallowed",
        "# a: 1 URL disallowed -> allowed",
        "# *: 3 URLs allowed -> disallowed, 1 URL disallowed -> allowed",
        "# 12 verdicts changed",
    ]
    agents = ("--agent=b", "--agent=c", "--agent=d", "--agent=e")
    (*_, shared, total) = compare(folder, "/x", *agents, new=new).out.splitlines()
    assert shared == "# b, c, d and 1 more: 1 URL allowed -> disallowed each"
    assert total == "# 4 verdicts changed"


def test_a_url_that_is_none_changes_nothing(folder: Path) -> None:
    """It is reported as it is without a comparison; others are compared."""
    (folder / "n.txt").write_text("User-agent: *\nDisallow: /\n")
    asked = ("--compare", "r.txt", "n.txt", "--agent=A")
    for urls, changed in (
        (["http://a:b/"], 0),
        (["http://a:b/", "/robots.txt", "/x"], 1),
    ):
        done = robots_here(folder, *asked, *urls)
        assert done.errors == ["scrapy robots: invalid host or port: 'http://a:b/'"]
        assert done.status == 2
        assert done.out.endswith(f"# {changed} verdict{'s' * (changed != 1)} changed\n")


def test_urls_come_from_standard_input_as_elsewhere(folder: Path) -> None:
    new = RULES.replace("GPTBot", "CCBot")
    for arguments in ([], ["-"]):
        done = compare(folder, *arguments, new=new, stdin=b"/x\n/y\n")
        assert done.out.endswith("# 4 verdicts changed\n")
    assert compare(folder, new=new).out.endswith("# 4 lines changed\n"), "there is none"
    # A file from there leaves no URLs.
    done = robots_here(folder, "--compare", "r.txt", "-", stdin=new)
    assert done.out.endswith("# 4 lines changed\n")
    for arguments in (["--compare", "r.txt", "-", "-"], ["--file", "-", "-"]):
        done = robots_here(folder, *arguments, stdin=new)
        assert_wrong_usage(done, "error: standard input can be read only once")


# From a file to another: what is printed of each line, and whose it is.
CHANGES = [
    ("Crawl-delay: 1", "Crawl-delay: 100", ["- 2 *", "+ 2 *"]),
    ("Request-rate: 1/10", "", ["- 2 *"]),
    ("Visit-time: 0600-0845", "", ["- 2 *"]),
    ("", "Content-Signal: ai-train=no", ["+ 2 *"]),
    ("Content-Usage: train-ai=n", "Content-Usage: train-ai=y", ["- 2 *", "+ 2 *"]),
    ("Sitemap: https://a.b/s.xml", "", ["- 2 file"]),
    ("site-map: https://a.b/s.xml", "Sitemap:  https://a.b/s.xml # new", []),
    ("License: https://a.b/l.xml", "", ["- 2 file"]),
    ("Host: a.b", "Host: b.b", ["- 2 file", "+ 2 file"]),
    ("", "Clean-param: ref /shop", ["+ 2 file"]),
    ("Noindex: /x", "", ["- 2 file"]),
    ("noindex:/x", "Noindex : /x", []),
    ("Disallow: /x", "Allow: /x", ["- 2 *", "+ 2 *"]),
    ("Disallow: /é", "disallow: /%c3%a9", []),
    ("# a comment: b", "", []),
    # Which agents a line is about depends on what it is: only for delays, a delay ends their list.
    ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x",
     "User-agent: a\nCrawl-delay: 2\nUser-agent: b\nDisallow: /x", ["- 3 a", "+ 3 a", "- 3 *", "+ 3 *"]),
    ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x",
     "User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /y",
     ["- 5 a", "+ 5 a", "- 5 b", "+ 5 b", "- 5 *", "+ 5 *"]),
    ("Disallow: /\nUser-agent: a\nContent-Signal: search=no\nUser-agent: b\nContent-Signal: search=yes",
     "Disallow: /\nUser-agent: a\nContent-Signal: search=yes\nUser-agent: b\nContent-Signal: search=yes",
     ["- 4 a", "+ 4 a"]),
    # An agent that leaves a group changes nothing for the others.
    ("User-agent: a\nUser-agent: b\nDisallow: /", "User-agent: a\nDisallow: /", ["- 3 b", "- 4 b"]),
]  # fmt: skip


def test_every_line_that_means_something_to_somebody_is_compared(
    tmp_path: Path,
) -> None:
    with every_row() as row:
        for old, new, expected in CHANGES:
            with row(f"{old} -> {new}"):
                (tmp_path / "r.txt").write_text(
                    f"User-agent: *\n{old}\n", encoding="utf-8"
                )
                done = compare(tmp_path, "--json", new=f"User-agent: *\n{new}\n")
                assert done.status == int(bool(expected))
                signs = {"removed": "-", "added": "+"}
                assert [
                    f"{signs[line['change']]} {line['line']} {line['group'] or 'file'}"
                    for line in done.json
                ] == expected


def test_what_stands_above_all_groups_means_something_only_to_the_whole_file(
    tmp_path: Path,
) -> None:
    above = "Disallow: /x\nCrawl-delay: 5\nContent-Signal: search=no\nSitemap: https://a.b/\n"
    (tmp_path / "r.txt").write_text(f"{above}User-agent: *\nDisallow: /\n")
    done = compare(tmp_path, new="User-agent: *\nDisallow: /\n")
    assert done.out.splitlines() == [
        "- r.txt:3: Content-Signal: search=no (whole file)",
        "- r.txt:4: Sitemap: https://a.b/ (whole file)",
        "# 2 lines changed",
    ]


def test_what_means_the_same_is_no_change(folder: Path) -> None:
    """Order, spelling, and what is said twice."""
    (folder / "r.txt").write_text(
        "User-agent: *\nDisallow: /é\nDisallow: /b\n", encoding="utf-8"
    )
    new = "useragent: *\nDisallow: /b\ndisallow: /%c3%a9\nUser-agent: *\nDisallow: /b\n"
    done = compare(folder, new=new)
    assert (done.status, done.out) == (0, "# 0 lines changed\n")
    assert compare(folder, "/é", "/b", new=new).out == "# 0 verdicts changed\n"


def test_lines_of_a_file_with_many_agents_are_compared_in_time(tmp_path: Path) -> None:
    """A million look-ups, not a thousand readings of half a megabyte."""
    body = "".join(
        f"User-agent: a{'b' * (n % 30)}-{n // 30}\nCrawl-delay: {n}\n"
        for n in range(9000)
    )
    (tmp_path / "r.txt").write_text(body)
    done = robots_here(
        tmp_path, "--compare", "r.txt", "-", "--json", stdin="User-agent: *\n"
    )
    assert done.status == 1
    assert len(done.json) > 1000
