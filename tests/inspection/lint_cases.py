"""Files for lint: with nothing to say about, with what is found in each, and hard to be right about."""

from __future__ import annotations

ALL = b"User-agent: *\n"

CLEAN = [
    b"User-agent: *\nDisallow:\n",
    (
        b"# hello\n\nuser-agent: a\nuser-agent: b-c_d\ndisallow: /x\nallow: /x/y$ # why\n\n"
        b"User-Agent: *\nDISALLOW: /*.pdf\nSitemap: https://example.com/s.xml\n"
    ).replace(b"/x\n", b"/x\ndisallow: *.pdf\n"),
    "User-agent: *\nDisallow: /café\n".encode(),
    # A rule of one group says nothing about another.
    b"User-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /x\n",
    # Longer, but not of the same paths.
    b"User-agent: *\nDisallow: /x\nAllow: /x/y\nDisallow: /x$\n",
    # Closed to all but some; closed to one; open to one on purpose.
    b"User-agent: *\nDisallow: /\nAllow: /press\n",
    b"User-agent: *\nDisallow: /x\n\nUser-agent: Googlebot\nDisallow:\n",
    b"User-agent: *\nDisallow: /x\n\nUser-agent: Googlebot\nAllow: /\n\nUser-agent: GPTBot\nDisallow: /\n",
    # No style sheets or scripts, or they are allowed, or another rule forbids them.
    b"User-agent: *\nDisallow: /jsessionid\nDisallow: /static-pages/\n",
    b"User-agent: *\nDisallow: /assets/\nAllow: /assets/*.css\nAllow: /assets/*.js\n",
    b"User-agent: *\nDisallow: /a\n\nUser-agent: GPTBot\nDisallow: /a\nDisallow: /css/\n",
    # A sitemap that is closed to those that may fetch nothing at all.
    b"User-agent: *\nDisallow: /x\n\nUser-agent: GPTBot\nDisallow: /\n\nSitemap: https://a.b/s.xml\n",
    # User-agent lines with a comment in between; comments behind rules.
    b"User-agent: a\n# and\nUser-agent: b\nDisallow: /x # a page\nDisallow: /y# a page\n",
    # Characters that are special in regular expressions, or dollar signs that are meant.
    b"User-agent: *\nDisallow: /*.*?a=\nDisallow: /index.*.php\nDisallow: /f[0]=(a)\nDisallow: /.git\n",
    b"User-agent: *\nDisallow: /$file/\nDisallow: /*?$orderby=\nDisallow: /a,b\nDisallow: /*,*/x\n",
    # Everything is open to all, and says so.
    b"User-agent: *\nAllow: /\n",
]

# A file; line and code of what is found.
FOUND = [
    (b"useragent: *\nDissallow: /x\nDisallowed: /y\nsite-map: https://a.b/c\n", "1 typo"),
    (ALL + b"disallow /x\ndisallow /y z\n", "2 missing-colon; 3 line-ignored"),
    (ALL + b"Allow: /\nuser agent b\n", "3 line-ignored"),
    (ALL + b"Allow: /\nSitemap https://a.b/s\n", "3 later-colon; 3 relative-sitemap"),
    (ALL + b"Disallow /wiki/Special:\nDisallow /wiki/Special:Search\n", "2 later-colon"),
    (ALL + b"Dissallow /a:b\nAllow /c:\nAllow: /\n", "2 later-colon; 2 typo"),
    (b"User agent foo: bar\nDisallow: /x\nDisallow all: /y\n", "1 later-colon; 1 typo"),
    (b"Disallow: /x\n" + ALL + b"Allow: /\n", "1 rule-before-group"),
    (b"Crawl-delay: 5\n" + ALL + b"Disallow: /x\n", "1 delay-before-group"),
    (ALL + b"Disallow: x\nDisallow: https://a.b/x\n", "2 never-matches"),
    (ALL + b"Disallow: /a b\nDisallow: /c#d\n", "2 blank-in-rule; 3 hash-cut"),
    (ALL + b"Disallow: /a, /b\nDisallow: /c,/d\n", "2 rules-joined"),
    (ALL + b"Disallow: /#!/app\n", "2 hash-cut; 2 site-closed"),
    (ALL + b"Disallow: /search/#*\nDisallow: #/a\nDisallow: /b#\n", "2 hash-cut"),
    (ALL + b"Disallow: /x$*\nDisallow: /docs/*.pdf$*\nDisallow: /a$b\n", "2 dollar-inside"),
    (ALL + b"Disallow: /(a|b)/\nDisallow: /page-.*\nDisallow: /[0-9]+/\n", "2 regular-expression"),
    (ALL + b"Disallow: /d/.*\nDisallow: /\\d{1,2}\nDisallow: ^/x\n", "2 regular-expression; 4 never-matches"),
    (ALL + b"Disallow: /x\nAllow:\n", "3 empty-allow"),
    (ALL + b"Allow: /public\nDisallow:\n", "file only-allows"),
    (b"User-agent: FooBot/2.1\nUser-agent: Foo Bot\nUser-agent: * all\nAllow: /\n", "1 agent-cut"),
    (b"User-agent: 360Spider\nUser-agent: *bot\nUser-agent:\nAllow: /\n", "1 agent-never"),
    (ALL + b"Disallow: /" + b"a" * 17_000 + b"\n", "2 line-cut"),
    (b"\xef\xbb\xbf" + ALL + b"Disallow: /x\n", "1 bom"),
    (b"\xef\xbb" + ALL + b"Disallow: /x\n", "1 bom"),
    (ALL + b"# caf\xe9\nDisallow: /x\n# t\xe9\n", "2 not-utf8"),
    (ALL + b"Allow: /\nCrawl-delay: 3s\n", "3 bad-delay"),
    (
        ALL + b"Disallow: /a\nCrawl-delay: 3\nHost: a.b\nClean-param: s /\nNoindex: /b\nNoindex: /c\nVisit-time: 0600-0845\n",
        "3 other-delay; 4 other-field; 5 other-field; 6 noindex-field; 8 other-field",
    ),
    (ALL + b"Disallow: /a\nFoo: /b\nhello you there\nDsallow: /c\n", "3 unknown-field; 4 no-field; 5 misspelt-field"),
    (ALL + b"Disallow: /a\n<div>\nx: y\n<p>hello\n</div>\nDisallow: /b\n", "3 html-appended"),
    (ALL + b"Disallow: /a\nDisallow: /a\n", "3 duplicate"),
    (ALL + b"Disallow: /a\nUser-agent: b\nAllow: /\n" + ALL + b"Disallow: /a\n", "5 split-group; 6 duplicate"),
    (ALL + "Disallow: /%c3%a9\nDisallow: /é\n".encode(), "3 duplicate"),
    (ALL + b"Disallow: /a\nAllow: /a\n", "2 shadowed"),
    (ALL + b"Allow: /a\nDisallow: /a*\n", "2 shadowed; 3 trailing-star"),
    (ALL + b"Disallow: /x\nAllow: /a/index.html*\nAllow: /a/index.html\n", "3 trailing-star; 4 shadowed"),
    (ALL + b"Disallow: /x\nAllow: /a/index.html\nAllow: /a/index.html*\n", "4 trailing-star"),
    (b"User-agent: a\nUser-agent: b\nDisallow: /x\n\nUser-agent: b\nAllow: /x\n", "5 split-group"),
    (ALL + b"Disallow: /\n", "2 site-closed"),
    (ALL + b"Disallow: /x\nDisallow: *\n", "3 site-closed"),
    (ALL + b"Allow: /\n\nUser-agent: Googlebot\nDisallow: /\n", "5 engine-closed"),
    (ALL + b"Disallow: /cart\nUser-agent: bingbot\nDisallow: /x\n", "3 lost-rules"),
    (ALL + b"Disallow: /cart\nUser-agent: bingbot\nCrawl-delay: 5\n", "3 lost-rules; 4 other-delay"),
    (ALL + b"Disallow: /c\nUser-agent: b\nDisallow: /x\nUser-agent: b\nDisallow: /y\n", "3 lost-rules; 5 split-group"),
    (b"User-agent: a\nCrawl-delay: 5\n\n" + ALL + b"Disallow: /x\n", "2 other-delay; 4 joined-agents"),
    (b"User-agent: a\n\nUser-agent: b\nDisallow: /x\n", "3 joined-agents"),
    (b"User-agent: a\nNoindex: /y\nUser-agent: b\nDisallow: /x\n", "2 noindex-field; 3 joined-agents"),
    (b"User-agent: a\nContent-Signal: search=yes\nUser-agent: b\nDisallow: /x\n", "3 joined-agents"),
    (b"User-agent: a\nSitemap: https://a.b/s\nUser-agent: b\nDisallow:\n", "3 joined-agents"),
    (ALL + b"Allow: /\nUser-agent: a\nUser-agent: b\n", "3 empty-group"),
    (ALL + b"Disallow: /wp-includes/\nDisallow: /*.js$\n", "2 blocked-assets"),
    (ALL + b"Disallow: /theme/css/\nAllow: /*.css\n", "2 blocked-assets"),
    (ALL + b"Disallow: /Admin\nDisallow: /admin\n", "3 case"),
    (ALL + b"Allow: /\nSitemap: /s.xml\nSitemap:\nSitemap: ftp://a.b/s\n", "3 relative-sitemap; 4 bad-sitemap; 5 bad-sitemap"),
    (ALL + b"Allow: /\nSitemap: https://a.b/a.xml,b.xml\nSitemap: https://a.b/c https://a.b/d\n", "3 sitemaps-joined"),
    (ALL + b"Disallow: /s\nSitemap: https://a.b/s.xml\n", "3 sitemap-disallowed"),
    (ALL + b"Allow: /\nUser-agent: b\nDisallow: /s\nSitemap: https://a.b/s.xml\n", "5 sitemap-disallowed"),
    (b"User-agent: a\nDisallow:\n\nUser-agent: a\n", "4 split-group"),
    (b"", "file empty"),
    (b"# nothing\n", "file empty"),
    (b"Sitemap: https://a.b/s\n", "file empty"),
    (b"<!DOCTYPE html>\n<title>Welcome</title>\n<p>hello", "file html"),
    (b"<!DOCTYPE html>\nUser-agent: *\nDisallow: /x\n<p>hello", "file html"),
    ("User-agent: *\n".encode("utf-16"), "1 utf-16"),
]  # fmt: skip

# Files about which claims are easily false.
TRUE_OF = [
    # Crawlers that are named, and closed, too; or open in part; or with several groups.
    b"User-agent: Googlebot\nUser-agent: *\nDisallow: /\n",
    b"User-agent: *\nDisallow: /\n\nUser-agent: Googlebot\nDisallow: /\n",
    b"User-agent: *\nDisallow: /\n\nUser-agent: a\nDisallow: /\nAllow: /b c\n\nUser-agent: b\n",
    b"User-agent: *\nDisallow: /*\nAllow: /\n\nUser-agent: a\nDisallow: /x\n\nUser-agent: b\n",
    b"User-agent: *\nDisallow: /**\nAllow: /a\n\nUser-agent: a\nDisallow: *\nAllow: /\n",
    (
        b"User-agent: *\nContent-Signal: search=yes, ai-train=no\nDisallow: /\n\n"
        b"User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n"
    ),
    (
        b"User-agent: a\nUser-agent: b\nDisallow: /y\n\nUser-agent: *\nDisallow: /x\n\n"
        b"User-agent: b\nDisallow: /x\nDisallow: /css\n"
    ),
    b"User-agent: *\nDisallow: /x\n\nUser-agent: a\nUser-agent: b\nCrawl-delay: 9\n\nUser-agent: c\n",
    b"User-agent: *\nDisallow: /static/pdf/\nDisallow: /static/\nDisallow: /s\n",
    # Dollar signs and stars, one after the other.
    ALL
    + b"Disallow: /x$\nAllow: /x$*\nDisallow: /x*$\nAllow: /x*\nDisallow: /x$*$\nAllow: /x$$\n",
    ALL
    + b"Disallow: /$\nAllow: /$*\nDisallow: /*$\nAllow: *$\nDisallow: **\nAllow: /**$*\n",
    # An allow of an index page is one of its directory.
    ALL
    + b"Allow: /a/index.htm\nAllow: /a/index.html\nDisallow: /a/index.html*\nDisallow: /a/$\n",
    ALL
    + b"Allow: /a/*/index.html\nAllow: /a/**/index.html\nDisallow: /\nAllow: /index.html*\n",
    # Groups that are joined, and delays that aren't.
    b"User-agent: a\nCrawl-delay: 5\nUser-agent: b\nCrawl-delay: 7\nUser-agent: *\nDisallow: /x\n",
    b"User-agent: a\n\nUser-agent: a\nDisallow: /x\n\nUser-agent: b\nAllow: /x\nUser-agent: a\n",
    b"User-agent: a\n\nUser-agent: b\nDisallow: /x\n\nUser-agent: a\nAllow: /xx\nAllow: /x\n",
    # Lines before all groups; fields that begin like others.
    b"Crawl-delay: 1\nRequest-rate: 1/9\nAllow: /\nNoindex: /\nUser-agent: a\nRequest-rate: 1/3\n",
    b"User-agent:*\nDisallowAITraining: /\nSitemaps: /x.xml\nAllow-all: /\nuser-agents: a b\n",
    ALL
    + b"Disallow: /\nAllow: /index.htm y\nAllow: /a b/index.html\nAllow: /a/index.html x/\n",
    # Blanks and stars.
    ALL + b"Allow: / *\nDisallow: /a *\nDisallow: /b* c*\nDisallow: *\t*\n",
    # Paths that begin with two slashes, or look like URLs.
    ALL
    + b"Disallow: /*/x/\nDisallow: //y\nDisallow: /http://a.b/css/\n\nUser-agent: a\n\n",
    ALL
    + b"Disallow: none\nDisallow: all\nDisallow: .pdf\nDisallow: ?q=\nDisallow: \\x\n",
    ALL + b"Disallow: /a,/b,\nDisallow: /*,/c\nDisallow: /,/\nDisallow: */,%20/d\n",
    ALL + b"Disallow:/a#b:c\nDisallow /c#d\nAllow: /e #f\nSitemap: https://a.b/c#d\n",
    # HTML with rules in it, and behind it.
    ALL
    + b"Disallow: /a\n<html>\n<p>\nDisallow: /b\n<p>\n<p>\n<p>\nAllow: /c\n</html>\n",
]
