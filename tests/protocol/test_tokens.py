"""Product tokens, and the one that a User-Agent header carries (REP.md section 7)."""

from __future__ import annotations

from scrapy_rep.protocol.syntax import product_token

SAFARI = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko)"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15"
ANDROID = "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P)"
MOBILE = SAFARI.replace("Safari", "Mobile Safari")
WEBKIT = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible;"
COMPATIBLE = "Mozilla/5.0 (compatible;"

# Header: token.
OWN_NAME = {
    "  FooBot/1.2 (+https://foo.example/bot)  ": "FooBot",
    "foo_bot-x/1.2": "foo_bot-x",
    "my_project (+http://www.yourdomain.com)": "my_project",  # Scrapy's project template
    "FooBot/1.0 Mozilla/5.0": "FooBot",  # its own name before a browser's
    # As a group's name the token ends at the digit, so that is the one that can be obeyed.
    "MJ12bot/1.0": "MJ",
}
CHROME, GOOGLE = "Chrome/120.0.0.0 Safari/537.36", "+http://www.google.com/bot.html"
# In a comment: of a crawler that poses as a browser.
DISGUISED = {
    f"{COMPATIBLE} FooBot/1.2; +https://foo.example/bot)": "FooBot",
    f"{WEBKIT} Googlebot/2.1; {GOOGLE}) {CHROME}": "Googlebot",
    f"{MAC} Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/x)": "Applebot",
    f"{COMPATIBLE} PetalBot;+https://webmaster.petalsearch.com/x)": "PetalBot",
    f"{ANDROID} {MOBILE} (compatible; Bytespider; spider-feedback@bytedance.com)": "Bytespider",
    # Names that don't say what they are: a version and an address, in one comment, do.
    f"{WEBKIT} ChatGPT-User/1.0; +https://openai.com/bot)": "ChatGPT-User",
    f"{COMPATIBLE} Dataprovider/6.92; +https://www.dataprovider.com/)": "Dataprovider",
}


def test_a_crawlers_token_is_found_in_its_user_agent_header() -> None:
    rows = {**OWN_NAME, **DISGUISED}
    assert {header: product_token(header) for header in rows} == rows


BROWSERS = [
    "Mozilla/5.0 (bot@example.com)",
    f"{WINDOWS} crawler@example.com",
    f"{WINDOWS} {SAFARI}",
    f"{IPHONE} (KHTML, like Gecko) CriOS/120.0.6099 Mobile/15E148 Safari/604",
    "Mozilla/5.0 (Windows NT 10.0; WOW64; Trident/7.0; rv:11.0) like Gecko",
    "Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1; Trident/5.0)",
    "",
    "*",
    "/1.0",
    "(+https://foo.example)",
]


def test_a_browsers_user_agent_header_names_no_crawler() -> None:
    assert [one for one in BROWSERS if product_token(one)] == []
