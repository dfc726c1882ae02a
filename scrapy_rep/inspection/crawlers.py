"""Crawlers that their operators document: what ``scrapy robots --agents-known`` asks
about.

To add one, name the operator's own page; without such a page, a crawler is not listed.
Then change :data:`AS_OF`, the list in docs/check.md, and docs/command.md, which names
the crawlers with fallbacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

AS_OF = "2026-11-28"
"""When the operators' pages were last compared with :data:`KNOWN`."""

SEARCH = "search engine"
AI_TRAINING = "AI training"
AI_SEARCH = "AI search"
ASSISTANT = "assistant"
"""The purpose of crawlers that fetch what somebody has just asked for."""
OTHER = "other"

CRAWLER_PURPOSES = (SEARCH, AI_TRAINING, AI_SEARCH, ASSISTANT, OTHER)
"""What crawlers fetch pages for. :data:`KNOWN` has the crawlers in the order of these
purposes."""


class Crawler(NamedTuple):
    """A crawler that its operator documents."""

    chain: tuple[str, ...]
    """Its product token, then its fallbacks: it obeys the groups of the first of these
    tokens that the file names."""
    operator: str
    purpose: str
    """One of :data:`CRAWLER_PURPOSES`."""
    page: str
    """The URL where the operator documents the crawler."""
    note: str = ""
    """What else there is to know of the crawler, from :attr:`page`: mostly that
    robots.txt doesn't keep it away, or that it sends no requests."""

    @property
    def name(self) -> str:
        """Its own product token."""
        return self.chain[0]


# The pages where operators document their crawlers.

_GOOGLE = "https://developers.google.com/crawling/docs/crawlers-fetchers/google-common-crawlers"
_BING = "https://www.bing.com/webmasters/help/which-crawlers-does-bing-use-8c184ec0"
_APPLE = "https://support.apple.com/en-us/119829"
_DUCK = "https://duckduckgo.com/duckduckgo-help-pages/results"
_YANDEX = "https://yandex.com/support/webmaster/en/robot-workings/user-agent"
_BAIDU = "https://help.baidu.com/question?prod_id=99&class=476&id=2996"
_OPENAI = "https://developers.openai.com/api/docs/bots"
_ANTHROPIC = (
    "https://support.claude.com/en/articles/"
    "8896518-does-anthropic-crawl-data-from-the-web-and-how-can-site-owners-block-the-crawler"
)
_PERPLEXITY = "https://docs.perplexity.ai/docs/resources/perplexity-crawlers"
_META = "https://developers.facebook.com/docs/sharing/webmasters/web-crawlers/"
_AMAZON = "https://developer.amazon.com/amazonbot"
_MISTRAL = "https://docs.mistral.ai/en/robots"
_COMMON_CRAWL = "https://commoncrawl.org/ccbot"

# Notes about a crawler, see Crawler.note.
_NO_CRAWLER = "sends no requests: says how others' may be used"
_MAY_BYPASS = "may bypass robots.txt"

KNOWN = (
    Crawler(("Googlebot",), "Google", SEARCH, _GOOGLE),
    Crawler(("Googlebot-Image", "Googlebot"), "Google", SEARCH, _GOOGLE),
    Crawler(("Googlebot-Video", "Googlebot"), "Google", SEARCH, _GOOGLE),
    Crawler(("Googlebot-News", "Googlebot"), "Google", SEARCH, _GOOGLE),
    Crawler(("bingbot",), "Microsoft", SEARCH, _BING),
    Crawler(("Applebot", "Googlebot"), "Apple", SEARCH, _APPLE),
    Crawler(("DuckDuckBot",), "DuckDuckGo", SEARCH, f"{_DUCK}/duckduckbot"),
    Crawler(("YandexBot", "Yandex"), "Yandex", SEARCH, _YANDEX),
    Crawler(("Baiduspider",), "Baidu", SEARCH, _BAIDU),
    Crawler(("GPTBot",), "OpenAI", AI_TRAINING, _OPENAI),
    Crawler(("ClaudeBot",), "Anthropic", AI_TRAINING, _ANTHROPIC),
    Crawler(("Google-Extended",), "Google", AI_TRAINING, _GOOGLE, _NO_CRAWLER),
    Crawler(("Applebot-Extended",), "Apple", AI_TRAINING, _APPLE, _NO_CRAWLER),
    Crawler(("meta-externalagent",), "Meta", AI_TRAINING, _META),
    Crawler(("Amazonbot",), "Amazon", AI_TRAINING, _AMAZON),
    Crawler(("MistralAI-Training",), "Mistral", AI_TRAINING, _MISTRAL),
    Crawler(("OAI-SearchBot",), "OpenAI", AI_SEARCH, _OPENAI),
    Crawler(("Claude-SearchBot",), "Anthropic", AI_SEARCH, _ANTHROPIC),
    Crawler(("PerplexityBot",), "Perplexity", AI_SEARCH, _PERPLEXITY),
    Crawler(("meta-webindexer",), "Meta", AI_SEARCH, _META),
    Crawler(("Amzn-SearchBot",), "Amazon", AI_SEARCH, _AMAZON),
    Crawler(("MistralAI-Index",), "Mistral", AI_SEARCH, _MISTRAL),
    Crawler(("DuckAssistBot",), "DuckDuckGo", AI_SEARCH, f"{_DUCK}/duckassistbot"),
    Crawler(("ChatGPT-User",), "OpenAI", ASSISTANT, _OPENAI, _MAY_BYPASS),
    Crawler(("Claude-User",), "Anthropic", ASSISTANT, _ANTHROPIC),
    Crawler(("Perplexity-User",), "Perplexity", ASSISTANT, _PERPLEXITY, _MAY_BYPASS),
    Crawler(("meta-externalfetcher",), "Meta", ASSISTANT, _META, _MAY_BYPASS),
    Crawler(("Amzn-User",), "Amazon", ASSISTANT, _AMAZON),
    Crawler(("MistralAI-User",), "Mistral", ASSISTANT, _MISTRAL),
    Crawler(("CCBot",), "Common Crawl", OTHER, _COMMON_CRAWL, "an archive open to all"),
    Crawler(("GoogleOther",), "Google", OTHER, _GOOGLE),
)

KNOWN_BY_CHAIN = {crawler.chain: crawler for crawler in KNOWN}
"""The known crawlers, by their :attr:`~Crawler.chain`."""


def about_known(crawler: Crawler | None) -> dict[str, Any]:
    """Return what is known of a crawler, ready for JSON; the same keys, with None, if
    it isn't known."""
    if crawler is None:
        return {"operator": None, "purpose": None, "page": None, "note": None}
    return {
        "operator": crawler.operator,
        "purpose": crawler.purpose,
        "page": crawler.page,
        "note": crawler.note or None,
    }
