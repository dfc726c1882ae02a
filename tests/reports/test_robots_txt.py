"""What parsers were reported to get wrong; REP.md sections 6 to 8. To add one, write a line: project
and number of the report; a robots.txt, as small as shows it (not the report's own); a product token;
the path that is asked for; whether it is allowed."""

from __future__ import annotations

from scrapy_rep.protocol import RobotsTxt

ALL = "user-agent: *\n"
TWO = "user-agent: a\nuser-agent: b\ndisallow: /\n"
ROBOTS_TXT: list[tuple[str, str | bytes, str, str, bool]] = [
    # The file
    ("BUbiNG 17", "\ufeffuser-agent: *\ndisallow: /", "bot", "/x", False),
    ("scrapy 6195", "\ufeffdisallow: /\nuser-agent: bot\ndisallow: /x", "bot", "/x", False),
    ("rep-cpp 13", "\ufeffuser-agent: bot\nallow: /\nuser-agent: *\ndisallow: /", "bot", "/x", True),
    ("Meziantou.Framework 2618", "\ufeffUser-Agent: *\nDisallow: /y", "bot", "/y", False),
    ("scrapy 6292", b"# gr\xfc\xdfe\nuser-agent: *\ndisallow: /x", "bot", "/x", False),
    ("cpython 138502", b"user-agent: *\ndisallow: /\xff\ndisallow: /x", "bot", "/x", False),
    ("bee4 robots.txt 6", "  user-agent: *\n\n  # more\n\tdisallow: /x", "bot", "/x/y", False),
    ("robotex 4", "user-agent: *   # all\ndisallow: /   # of it", "bot", "/x", False),
    ("wget2 263", "# a\nuser-agent: bot # b\n# c\ndisallow: /x# d", "bot", "/x", False),
    ("Norconex crawler 35", f"{ALL}disallow: /x\n#disallow: /y\ndisallow: /z", "bot", "/x", False),
    ("Norconex crawler 36", f"{ALL}disallow: /x\n#disallow: /y\ndisallow: /z", "bot", "/y", True),
    ("spiderfoot 701", f"{ALL}disallow:  \t\n", "bot", "/x", True),
    ("robots-parser 32", f"{ALL}disallow:\n\nsitemap: https://x.example/", "bot", "/x", True),
    ("wpull 273", "user-agent: *\n\n\ndisallow: /x", "bot", "/x", False),
    ("govuk-puppet 8518", f"{ALL}disallow: /*/p$\nuser-agent: a\ndisallow: /", "bot", "/x/p", False),
    # Groups and product tokens
    ("bee4 robots.txt 4", TWO, "a", "/x", False),
    ("movar 434", "user-agent: *\nuser-agent: a\ndisallow: /x", "bot", "/x", False),
    ("movar 480", "user-agent: a\nuser-agent: *\ndisallow: /x", "bot", "/x", False),
    ("ultimate-seo-geo 8", "user-agent: A\nuser-agent: b\ndisallow: /", "a", "/x", False),
    ("robots-parser 7", "USER-AGENT: a\nUser-Agent: b\nDISALLOW: /", "b", "/x", False),
    ("t1gor Robots.txt-Parser-Class 35", "user-agent: BoT\ndisallow: /", "bOt", "/", False),
    ("robots-txt-file 4", f"{ALL}disallow: /x\nuser-agent: Bad\ndisallow: /", "Bad", "/y", False),
    ("roboxt 8", "user-agent: crawleR\ndisallow: /no", "Crawler", "/no", False),
    ("crawler-commons 453", "user-agent: GptBot\ndisallow: /", "GPTBOT", "/x", False),
    ("ai.robots.txt 87", "user-agent: Meta-X\ndisallow: /", "meta-x", "/x", False),
    ("crawler-commons 192", "user-agent: foo\ndisallow: /", "foobot", "/x", True),
    ("reppy 37", "user-agent: foobot-news\ndisallow: /", "foobot", "/x", True),
    ("nuxt-modules robots 314", "user-agent: Applebot-Extended\ndisallow: /", "bot", "/x", True),
    ("saltybeagle Spider 38", "user-agent: test*\ndisallow: /", "bot", "/x", True),
    ("crawler-commons 91", f"{ALL}disallow: /x\n\n{ALL}disallow: /y", "bot", "/x", False),
    ("crawler-commons 423", "user-agent: a\ndisallow: /x\nuser-agent: *\ndisallow: /", "a", "/y", True),
    ("temoto robotstxt 46", "user-agent: a\nclean-param: s\nuser-agent: b\ndisallow: /", "a", "/", False),
    ("crawler-commons 430", "user-agent: a\nsitemap: /s\nuser-agent: b\ndisallow: /", "a", "/", False),
    ("temoto robotstxt 6", f"user-agent: a\ndisallow:\n\n{ALL}disallow: /", "a", "/x", True),
    ("EDDI 787", f"{ALL}disallow: /\n\nuser-agent: a\ndisallow:", "a", "/x", True),
    ("FediFetcher 126", f"user-agent: a\ndisallow: /\n\n{ALL}disallow: /m/", "bot", "/api", True),
    # Which rule wins
    ("robots.js 18", f"{ALL}allow: /\ndisallow: /admin/", "bot", "/admin/x", False),
    ("robots.js 19", f"{ALL}allow: /\n\ndisallow: /x", "bot", "/x", False),
    ("Robots.txt-Parser-Class 76", f"{ALL}allow: /\nallow: /c/a\ndisallow: /c", "bot", "/c/", False),
    ("cpython 148951", f"{ALL}disallow: /w/\nallow: /w/ajax.php", "bot", "/w/ajax.php", True),
    ("crawler-commons 22", f"{ALL}allow: /x/y/z\ndisallow: /x/y", "bot", "/x/y/z", True),
    ("crawler-commons 21", f"{ALL}disallow: /x\nallow: /x", "bot", "/x", True),
    ("robots-parser 21", f"{ALL}disallow: /t.html\nallow: /t.html", "bot", "/t.html", True),
    ("bopoda robots-txt-parser 13", f"{ALL}allow: /p\ndisallow: /*.htm", "bot", "/p.htm", False),
    ("httrack 458", f"{ALL}disallow: /\nallow: /public/", "bot", "/public/x", True),
    ("zenodo-rdm 708", f"{ALL}disallow: /api\nallow: /api/*/files", "bot", "/api/1/files", True),
    # Wildcards
    ("protego 29", f"{ALL}disallow: /*s=", "bot", "/?s=x", False),
    ("protego 51", f"{ALL}allow: /*/f/p=*/$\ndisallow: /", "bot", "/1/f/p=5/", True),
    ("reppy 83", f"{ALL}disallow: */test", "bot", "/test", False),
    ("crawler4j 107", f"{ALL}disallow: /*.print?", "bot", "/a.1.print?x", False),
    ("scrapy 754", f"{ALL}disallow: /*/x/", "bot", "/a/b/x/", False),
    ("cpython 115644", f"{ALL}disallow: /a/*/b\n", "bot", "/a/1/b", False),
    ("cpython 114310", f"{ALL}disallow: *", "bot", "/x", False),
    ("robots-txt-parser 1", f"{ALL}disallow: /*?*&*=", "bot", "/a?b=1&c=2", False),
    ("Robots.txt-Parser-Class 63", f"{ALL}disallow: *no/$", "bot", "/no/", False),
    ("bopoda robots-txt-parser 44", f"{ALL}disallow: no/$", "bot", "/no/", True),
    ("temoto robotstxt 21", f"{ALL}disallow: /*$h", "bot", "/a$h", False),
    ("opensearchserver 1864", f"{ALL}disallow: /\nallow: /s$", "bot", "/s?x", False),
    # Compared as written: nothing is decoded
    ("protego 28", f"{ALL}disallow: /*q=*new*", "bot", "/a?q=%3Anew%3Ab%2Bc", False),
    ("google robotstxt 57", f"{ALL}disallow: /a-%2A", "bot", "/a-*", True),
    ("crawler-commons 195", f"{ALL}disallow: /*%2F*", "bot", "/a/b", True),
    ("crawler-commons 408", f"{ALL}disallow: /*%2F*", "bot", "/a%2Fb", False),
    ("crawler-commons 420", f"{ALL}disallow: /a?b=c://d", "bot", "/a?b=c%3A%2F%2Fd", True),
    ("cpython 111788", f"{ALL}disallow: /x?", "bot", "/x", True),
    ("abot 56", f"{ALL}disallow: /?q", "bot", "/", True),
    ("cpython 88375", f"{ALL}disallow: /x?", "bot", "/x?", False),
]  # fmt: skip


def test_what_robots_txt_allows() -> None:
    wrong = []
    for reported, body, agent, path, allowed in ROBOTS_TXT:
        content = body.encode() if isinstance(body, str) else body
        decision = RobotsTxt.parse(content).decide(f"https://example.com{path}", agent)
        wrong += [] if decision.allowed == allowed else [(reported, decision)]
    assert wrong == []
