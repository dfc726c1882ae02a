"""What pages say, and what that means, each under the sentence that it rests on: of REP.md section
10, or (*Google*) of "Robots meta tag, data-nosnippet, and X-Robots-Tag specifications"."""

from __future__ import annotations

from scrapy_rep.protocol.page import PageRules

NAMES = (
    "noindex", "nofollow", "noarchive", "nosnippet", "noimageindex", "notranslate",
    "indexifembedded", "noai", "noimageai", "max_snippet", "max_image_preview",
    "max_video_preview", "unavailable_after",
)  # fmt: skip


def told(rules: PageRules) -> str:
    """All that is not the default, in words."""
    parts = []
    for name in NAMES:
        value = getattr(rules, name)
        if name == "unavailable_after" and value is not None:
            value = value.strftime("%Y-%m-%dT%H:%M:%S")
        if value is not None and value is not False:
            parts.append(name if value is True else f"{name}={value}")
    return " ".join(parts)


BOTH = "noindex nofollow"
AFTER = "unavailable_after=2025-12-03T13:09:53"

# Lines of one header, agents, meaning.
HEADERS: dict[str, list[tuple[list[bytes], str | list[str], str]]] = {
    "Names, agents and rules are case-insensitive; rules are separated by commas.": [
        ([b"FooBot: noindex"], "foobot", "noindex"),
        ([b"nocache"], "foobot", "noarchive"),
        ([b"nosnippet, notranslate, noimageindex"], "foobot", "nosnippet noimageindex notranslate"),
        ([b"noindex, indexifembedded, noai, noimageai"], "foobot", "noindex indexifembedded noai noimageai"),
    ],
    "`all`, `index`, `follow`: nothing: defaults, they cancel nothing": [
        ([b"all, index, follow"], "foobot", ""),
        ([b"index", b"noindex", b"index"], "foobot", "noindex"),
    ],
    "All that applies is added up; nothing cancels a restriction.": [([b"foobot: noindex", b"nofollow"], "foobot", BOTH)],
    "every token of a chain counts": [
        ([b"foobot: noindex", b"foobot-image: nofollow"], ["foobot-image", "foobot"], BOTH),
        ([b"*: noindex"], [], "noindex"),
    ],
    "A header line may begin with an agent": [
        ([b"foobot: noindex, nofollow"], "foobot", BOTH),
        ([b"foobot: noindex, nofollow"], "barbot", ""),
        ([b"foobot-image: noindex"], "foobot", ""),
    ],
    "a further `otherbot:` inside the line holds from there on": [
        ([b"foobot: noindex, barbot: nofollow, noarchive"], "barbot", "nofollow noarchive"),
    ],
    "`name:` opens an agent's list only if a known rule follows it.": [
        ([b"barbot: unavailable_after: 3 Dec 2025, nofollow"], "foobot", ""),
        ([b"barbot: max-snippet: 5, nofollow"], "foobot", ""),
        ([b"barbot:\tnoindex"], "foobot", ""),
        ([b"barbot: noindexes, nofollow"], "foobot", "nofollow"),
        ([b"barbot:, nofollow"], "foobot", "nofollow"),
        ([b"foobot: noindex, revisit-after: 7 days, nofollow"], "foobot", BOTH),
        ([b"barbot: noindex, revisit-after: 7 days, nofollow"], "foobot", ""),
        ([b"noindex foobot: nofollow"], "foobot", BOTH),
        ([b"max-bot: noindex, nofollow"], "max-bot", BOTH),
        ([b"max-bot: noindex, nofollow"], "foobot", "nofollow"),
        ([b"noindex barbot: nofollow"], "foobot", "noindex"),
        ([b"refresh: 0;url=https://a.test/none,noindex"], "foobot", "noindex"),
    ],
    "Each header line starts afresh, for everybody.": [([b"barbot: noindex", b"nofollow"], "foobot", "nofollow")],
    "`max-snippet:`, … and `unavailable_after:` are rules, not agents": [
        ([b"max-snippet: 5, noindex"], "foobot", "noindex max_snippet=5"),
        ([b"max-video-preview: 3, noindex"], "foobot", "noindex max_video_preview=3"),
    ],
    "dates hold commas and colons": [
        ([b"unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT"], "foobot", AFTER),
        ([b"unavailable_after: Dec 3, 2025, 1:09:53 PM, none"], "foobot", f"{BOTH} {AFTER}"),
    ],
    "a proxy may fold several lines into one": [
        ([b"noindex, foobot: nofollow, barbot: noarchive"], "foobot", BOTH),
        ([b"barbot: noarchive, unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT, foobot: noindex"], "foobot", "noindex"),
    ],
    "`max-image-preview:none` is not `none`": [([b"max-image-preview : none"], "foobot", "max_image_preview=none")],
    "Of two values the more restrictive counts.": [
        ([b"max-image-preview:large, max-image-preview:standard"], "foobot", "max_image_preview=standard"),
        ([b"max-snippet:0, max-snippet:-1"], "foobot", "max_snippet=0"),
    ],
    "0: none, -1: no limit; what is no number is ignored": [
        ([b"max-video-preview:" + b"9" * 18], "foobot", f"max_video_preview={'9' * 18}"),
    ],
    "any bytes; what means nothing is ignored": [([], "foobot", ""), ([b": noindex"], "foobot", "noindex")],
    # Our own choice, of what leaves no doubt.
    "do what a site owner would expect: blanks or semicolons for commas": [
        ([b"noindex nofollow"], "foobot", BOTH),
        ([b"noindex;nofollow;"], "foobot", BOTH),
    ],
    "no-break spaces, BOMs: all of them separate": [
        ([b"\xa0noindex"], "foobot", "noindex"),
        ([b"noindex\xc2\xa0"], "foobot", "noindex"),
    ],
    "also after a rule with a value, since a restriction must not be lost by a slip": [
        ([b"max-snippet:-1; noindex"], "foobot", "noindex max_snippet=-1"),
        ([b"noindex;max-snippet:5"], "foobot", "noindex max_snippet=5"),
        ([b"barbot: noindex; foobot: nofollow"], "foobot", "nofollow"),
        ([b"noarchive; https://a.test/x, noindex"], "foobot", "noindex noarchive"),
        ([b"noarchive; key=a:b, noindex"], "foobot", "noindex noarchive"),
        ([b"max-snippet:x; noindex"], "foobot", "noindex"),
        ([b"unavailable_after: Wed, 03 Dec 2025 13:09:53 GMT noindex"], "foobot", f"noindex {AFTER}"),
        ([b"unavailable_after: 2025-12-03T13:09:53Z; max-snippet: 5 noindex"], "foobot", f"noindex max_snippet=5 {AFTER}"),
    ],
}  # fmt: skip
META = b'<meta name="robots" content="noindex">'

# HTML, encoding, agents, meaning; and what a browser sees of it where that is something else.
HTML: dict[str, list[tuple[bytes, str, str]]] = {
    "every `<meta name=\"robots\" content=\"…\">`": [
        (b'<meta name="robots" content="foobot: noindex">', "utf-8", ""),
        (b'<meta name="robots" content="max-snippet:-1, max-image-preview:large, max-video-preview:-1">',
         "utf-8", "max_snippet=-1 max_image_preview=large max_video_preview=-1"),
        (b'<meta name="robots" content="">', "utf-8", ""),
        (b'<meta property="robots" content="noindex">', "utf-8", ""),
    ],
    "every meta whose name is one of the crawler's tokens": [
        (b'<meta name="FooBot" content="noindex">', "utf-8", "noindex"),
        (b'<meta name="foobot-image" content="nofollow"><meta name="foobot" content="noindex">', "utf-8", BOTH),
        (b'<meta name="foobot-news" content="noindex"><meta name="*" content="noindex">', "utf-8", ""),
    ],
    "in `head` and in `body`": [(b"<table><tr>" + META + b"</tr></table>", "utf-8", "noindex")],
    "Not inside `noscript`, `template`, `script`, `style`, `textarea`, comments": [
        (b"<noscript>" + META + b"</noscript>", "utf-8", ""),
        (b"<template/>" + META, "utf-8", ""),
        (b"<script><!-- <script></script></script>" + META, "utf-8", "noindex"),
        (b"<script><!-- x</script>" + META, "utf-8", "noindex"),
        (b"<script src=x/>'<!--'</script>" + META, "utf-8", "noindex"),
        (b"<script><!-- <script></script> ... //--></script>" + META, "utf-8", "noindex"),
        (b"<script><!-- <script></script> " + META + b" //--></script>", "utf-8", ""),
        (b"<SCRIPT><!-- <Script x></script/> </sCRipt >" + META, "utf-8", "noindex"),
        (b"<script><!-- <script>--></script>" + META, "utf-8", "noindex"),
        (b"<script><!-- <script> --!></script>" + META + b"--></script>", "utf-8", ""),
        (b"<script><!--><script></script>" + META, "utf-8", "noindex"),
        (b"<script><!---><script></script>" + META, "utf-8", "noindex"),
        (b"<script><!-- <scripts></script>" + META, "utf-8", "noindex"),
        (b"<script><script></script>" + META, "utf-8", "noindex"),
        (b"<script>--> <!-- <script></script>" + META, "utf-8", ""),
        (b"<textarea>" + META + b"</textarea>", "utf-8", ""),
        (b"<title></titles>" + META + b"</title>", "utf-8", ""),
        (b"<noembed>" + META + b"</noembed>", "utf-8", ""),
        (b"<!-->" + META, "utf-8", "noindex"),
        (b"<!-- --!>" + META, "utf-8", "noindex"),
        (b"<!-- -- >" + META, "utf-8", ""),
        (b"<!--[if IE]>" + META + b"<![endif]-->", "utf-8", ""),
        (b"<?php echo ?>" + META, "utf-8", "noindex"),
        (b"</ x" + META, "utf-8", ""),
        (b"<![CDATA[ > " + META + b" ]]>", "utf-8", "noindex"),
    ],
    "Not inside foreign content (`svg`, `math`)": [
        (b"<svg><title>x</title></svg>" + META, "utf-8", "noindex"),
        (b"<svg><style><p></style></svg>" + META, "utf-8", "noindex"),
        (b"<svg><foreignObject><p>" + META + b"</p></foreignObject></svg>", "utf-8", "noindex"),
        (b"<svg><foreignObject><template>" + META + b"</template></foreignObject></svg>", "utf-8", ""),
        (b"<template><svg></template>" + META, "utf-8", "noindex"),
        (b"<svg width=1 /><![CDATA[ > " + META + b" ]]></svg>", "utf-8", "noindex"),
    ],
    "foreign content (`svg`, `math`) ends at some tags, and not at others": [
        (b"<svg></math><iframe>" + META + b"</svg>", "utf-8", "noindex"),
        (b"<svg><math></svg><iframe>" + META + b"</iframe>", "utf-8", ""),
        (b"<math><svg></math><iframe>" + META + b"</iframe>", "utf-8", ""),
        (b"<svg><svg></svg><iframe>" + META + b"</svg>", "utf-8", "noindex"),
        (b"</math><svg></svg><iframe>" + META + b"</iframe>", "utf-8", ""),
        (b"<svg></div><style>" + META, "utf-8", "noindex"),
        (b"<svg><font><style>" + META, "utf-8", "noindex"),
        (b"<svg><font color=red><style>" + META, "utf-8", ""),
        (b"<svg><font color=x><![CDATA[ > " + META + b" ]]>", "utf-8", "noindex"),
        (b"<svg></font color=red><style>" + META, "utf-8", "noindex"),
    ],
    "no-break spaces, BOMs: all of them separate, also where they are references": [
        (b'<meta name="robots" content="&#xFEFF;noindex">', "utf-8", "noindex"),
        ('<meta name="robots" content="\xa0noindex">'.encode("utf-16"), "utf-16", "noindex"),
    ],
    "foreign content (`svg`, `math`), where a browser sees no such element: a meta ends it": [
        (b"<svg>" + META + b"</svg>", "utf-8", "noindex"),
        (b"<math>" + META + b"</math>", "utf-8", "noindex"),
        (b"<svg></meta><style></svg>" + META, "utf-8", "noindex"),
        (b"<svg><title>" + META + b"</title></svg>", "utf-8", "noindex"),
    ],
    "comments, and what is none: quotes and angles in tags": [
        (b'<a b=c="d e= "f>g">' + META, "utf-8", "noindex"),
        (b'<a b="c>' + META.replace(b'"', b"'") + b'">', "utf-8", ""),
        (b'<a="b>' + META, "utf-8", "noindex"),
        (b'<a b="" ="d>' + META, "utf-8", "noindex"),
        (b'<a b/="d>' + META, "utf-8", "noindex"),
        (b"</a b='c>" + META + b"'>", "utf-8", ""),
        (b"a < b = '<p>'" + META, "utf-8", "noindex"),
    ],
    "`content` may stand before `name`; quotes may be double, single or missing": [
        (b"<meta content='noindex' name='robots'>", "utf-8", "noindex"),
        (b"<meta name=robots content=noindex, nofollow>", "utf-8", "noindex"),
        (b"<meta\rname=robots\rcontent=noindex>", "utf-8", "noindex"),
        (b'<meta = name="robots" content="noindex">', "utf-8", "noindex"),
        (b'<meta title="<" name="robots" content="noindex">', "utf-8", "noindex"),
        (b'<meta title="><" name="robots" content="noindex">', "utf-8", "noindex"),
        (b'<meta title=\'"><\' name="robots" content="noindex">', "utf-8", "noindex"),
        (b'<meta name="rob&#111;ts" content="noindex">', "utf-8", "noindex"),
        (b'<meta name="&#x72obots" content="noindex">', "utf-8", "noindex"),
    ],
    "as a browser sees them: broken HTML": [
        (b"<meta name=robots content=noindex", "utf-8", ""),
        (b'<p title="' + META.replace(b'"', b"'") + b'">', "utf-8", ""),
    ],
    "encodings: UTF-8, UTF-16, windows-1251 and others": [(META.decode().encode("utf-16-be"), "utf-16-be", "noindex")],
    "any bytes": [(b'<meta name="robots" content="&#' + b"9" * 5000 + b';, noindex">', "utf-8", "noindex")],
}  # fmt: skip
DATES = {
    "RFC 822": [
        ("Wed, 03 Dec 2025 13:09:53 GMT", "2025-12-03T13:09:53"),
        ("3 Dec 25 13:09 UT", "2025-12-03T13:09:00"),
        ("25 Jun 2010 15:00:00 PST", "2010-06-25T23:00:00"),
        ("Wed, 03 Dec 2025 13:09:53 -0330", "2025-12-03T16:39:53"),
        ("Wed, 03 Dec 2025 13:09:53 +0100 (CET)", "2025-12-03T12:09:53"),
        ("Fri, 31 Dec 1999 23:59:60 GMT", "1999-12-31T23:59:59"),
    ],
    "RFC 850": [
        ("Wednesday, 03-Dec-25 13:09:53 GMT", "2025-12-03T13:09:53"),
        ("23-Jul-2007 18:00:00 EST", "2007-07-23T23:00:00"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37"),
    ],
    "ISO 8601": [
        ("2025-12-03t13:09:53z", "2025-12-03T13:09:53"),
        ("2025-12-03T13:09:53.999+01:00", "2025-12-03T12:09:53"),
        ("2025-12-03T13:09-08:00", "2025-12-03T21:09:00"),
        ("2025-12-03 13:09:53", "2025-12-03T13:09:53"),
        ("20251203T130953Z", "2025-12-03T13:09:53"),
        ("20251203", "2025-12-03T00:00:00"),
    ],
    "what else people write": [
        ("Wed Dec  3 13:09:53 CET 2025", "2025-12-03T12:09:53"),
        ("December 3rd, 2025 at 1:09 pm", "2025-12-03T13:09:00"),
        ("Dec 3, 2025, 12:09:53 AM PST", "2025-12-03T08:09:53"),
        ("3 Sept 2025", "2025-09-03T00:00:00"),
        ("03.12.2025", "2025-12-03T00:00:00"),
        ("Wed, 03 Dec 2025 13:09:53 GMT+0200", "2025-12-03T11:09:53"),
    ],
    "a date that cannot be read is ignored": [
        (text, "")
        for text in (
            "", "never", "31 Feb 2025", "2025-12-03T25:00:00Z", "12/03/2025", "Dec 2025",
            "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00",
            "3 Dec 2025 13:09 XYZ!", "3 Dec 2025 13:00 pm", "99999-12-03", "1764767393",
            "3 Foo 2025", "3 Dec 2025 4", "\u0663 Dec 2025", "x" * 200, "1 " * 5000,
        )
    ],
}  # fmt: skip
