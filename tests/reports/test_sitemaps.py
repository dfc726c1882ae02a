"""What readers of sitemaps were reported to lose; REP.md section 9. To add one, write a line: project
and number of the report; a sitemap, as small as shows it; the URLs in it."""

from __future__ import annotations

import gzip

from scrapy_rep.protocol.sitemaps import SitemapReader

A, B = "https://x.example/a", "https://x.example/b"
FEED = "https://x.example/feed.xml"
URL_A, URL_B = f"<url><loc>{A}</loc></url>", f"<url><loc>{B}</loc></url>"
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def urlset(namespace: str) -> str:
    return f"<urlset xmlns='{namespace}'>{URL_A}</urlset>"


def rss(title: str) -> str:
    return f"<rss version='2.0'><channel><item><title>{title}</title><link>{A}</link></item></channel></rss>"


SITEMAPS: list[tuple[str, str | bytes, list[str]]] = [
    ("crawler-commons 174", f"<s:urlset xmlns:s='{NAMESPACE}'><s:url><s:loc>{A}</s:loc></s:url></s:urlset>", [A]),
    ("trafilatura 926", f"<urlset xmlns:i='urn:i'><url><i:i><i:loc>{B}</i:loc></i:i><loc>{A}</loc></url></urlset>", [A]),
    ("crawler-commons 210", urlset("http://www.google.com/schemas/sitemap/0.84"), [A]),
    ("crawler-commons 211", urlset(f"{NAMESPACE}/"), [A]),
    ("ThePixelDeveloper Sitemap 49", urlset(NAMESPACE.replace("http:", "https:")), [A]),
    ("ultimate-sitemap-parser 86", f"<urlset><urlset>{URL_A}{URL_B}</urlset></urlset>", [A, B]),
    ("ultimate-sitemap-parser 87", f"<urlset>{URL_A}</urlset>", [A]),
    ("sitemap.js 445", f"<urlset><url><loc><![CDATA[{A}]]></loc></url></urlset>", [A]),
    ("benbalter sitemap-parser 24", f"<sitemapindex><sitemap><loc>\n {A} \n</loc></sitemap></sitemapindex>", [A]),
    ("crawler-commons 29", f"<sitemapindex><sitemap>\n{A}\n</sitemap></sitemapindex>", [A]),
    ("crawler-commons 213", f"<sitemapindex><sitemap><loc>{A}</loc><loc>{B}</loc></sitemap></sitemapindex>", [A, B]),
    ("crawler-commons 153", f"<urlset><loc>{A}</loc><loc>{B}</loc></urlset>", [A, B]),
    ("Norconex crawler 758", f"<urlset><url><image><loc>{B}</loc></image><loc>{A}</loc></url></urlset>", [A]),
    ("crawler-commons 144", f"\n \n<?xml version='1.0'?>{urlset(NAMESPACE)}", [A]),
    ("google-sitemap-generator 88", f"<br />\n<b>Notice</b>: x<br />\n<?xml version='1.0'?>{urlset(NAMESPACE)}", [A]),
    ("crawler-commons 148", rss("caf&eacute; & more"), [A]),
    ("all-in-one-seo-pack 2010", rss("it&rsquo;s"), [A]),
    ("tech.finn.no 16", rss("this & that"), [A]),
    ("crawler-commons 201", f"<rss version='2.0'><channel><item><guid>{A}</guid></item></channel></rss>", [A]),
    # A bare ampersand is one
    ("badoo techblog 146", f"<urlset><url><loc>{A}?b&c</loc></url></urlset>", [f"{A}?b&c"]),
    ("k9mail.app 214", f"<feed><entry><link href='{A}&b'/></entry></feed>", [f"{A}&b"]),
    ("wpull 484", gzip.compress(urlset(NAMESPACE).encode()) + b"\n<!-- x -->", [A]),
    # Relative links of feeds, by xml:base or where the feed is from
    ("crawler-commons 203", "<feed><entry><link href='a'/></entry></feed>", [A]),
    ("feedbin 290", "<feed xml:base='https://x.example/b/'><entry><link href='../a'/></entry></feed>", [A]),
    ("liferea 1472", "<feed><entry xml:base='/x/'><link href='/a'/></entry></feed>", [A]),
    ("xml-feed 45", "<rss><channel><item><link>/a</link></item></channel></rss>", [A]),
    ("platform-blog 128", "<feed><entry><link href='//x.example/a'/></entry></feed>", [A]),
    # Processing instructions are no content
    ("scrapy 7686", f"<urlset><?old {URL_B}?>{URL_A}</urlset>", [A]),
    ("scrapy 7700", "<urlset><url><loc>https://x.example/<?x y?>a</loc></url></urlset>", [A]),
    ("milesj utility 25", gzip.compress(urlset(NAMESPACE).encode()), [A]),
]  # fmt: skip


def test_which_urls_a_sitemap_has() -> None:
    for reported, body, urls in SITEMAPS:
        content = body.encode() if isinstance(body, str) else body
        found = [
            entry["loc"]
            for entries in SitemapReader(url=FEED).read([content])
            for entry in entries
        ]
        assert (reported, found) == (reported, urls)
