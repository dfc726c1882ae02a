"""What parsers were reported to get wrong in page rules; REP.md section 10. To add one, write a line:
project, number of the report; header; HTML; what foobot is told (`tests.protocol.pages.told`)."""

from __future__ import annotations

from scrapy_rep.protocol.page import PageRules
from tests.protocol.pages import told

DATE = "unavailable_after=2011-07-05T12:30:00"
PAGES: list[tuple[str, list[bytes], bytes, str]] = [
    ("spatie robots-txt 10", [b"NoIndex"], b"", "noindex"),
    ("spatie robots-txt 69", [b"nofollow", b"foobot: noindex"], b"", "noindex nofollow"),
    ("spatie robots-txt 70", [b"noindex, unavailable_after: 5 Jul 2011 12:30:00 GMT"], b"", f"noindex {DATE}"),
    ("lighthouse 3657", [b"unavailable_after: Tue, 05 Jul 2011 12:30:00 GMT"], b"", DATE),
    ("mdn content 37079", [b"otherbot: noindex, nofollow, foobot: noarchive"], b"", "noarchive"),
    ("lighthouse 3182", [], b"<meta name=robots content='NONE'>", "noindex nofollow"),
    ("widow 15", [], b"<meta name=robots content='noindex nofollow'>", "noindex nofollow"),
    ("nutch 528", [], b'<META NAME="ROBOTS" CONTENT="nofollow">', "nofollow"),
    ("generate-sitemap 87", [], b"<Meta Name=Robots Content=NoIndex>", "noindex"),
    ("Norconex crawler 60", [], b"<!-- <meta name=robots content=noindex> --><meta name=robots content=all>", ""),
    ("crawler-commons 566", [], b"<meta name='robots'content='noindex,follow'/>", "noindex"),
    ("crawler4j 210", [], b"<meta content=nofollow name=robots>", "nofollow"),
    # Names with a value that are rules of others, and no agents.
    ("revisit-after", [b"revisit-after: 7 days, noindex"], b"", "noindex"),
    ("unknown rule", [b"noarchive, unknown-rule: 7, noindex"], b"", "noindex noarchive"),
    ("max-foo", [b"noindex, max-foo:large, nofollow"], b"", "noindex nofollow"),
    ("max-foo, none", [b"max-foo:none, nofollow"], b"", "nofollow"),
    ("rating", [b"rating: general; noindex"], b"", "noindex"),
    ("nositelinkssearchbox", [b"nositelinkssearchbox noindex"], b"", "noindex"),
    ("words", [], b"<meta name=robots content='foo nofollow; noindex'>", "noindex nofollow"),
    ("max-foo in a meta", [], b"<meta name=robots content='max-foo:none, nofollow'>", "nofollow"),
]  # fmt: skip


def test_what_a_page_says() -> None:
    for reported, lines, html, meaning in PAGES:
        rules = PageRules.from_headers(lines, "foobot")
        rules |= PageRules.from_html(html, "utf-8", "foobot")
        assert (reported, told(rules)) == (reported, meaning)
