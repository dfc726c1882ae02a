"""How a page may be used, all sources together (REP.md section 11)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.requests import chain_behind, crawls_behind
from scrapy_rep.pages.rules import encoding_of, is_html, page_rules
from scrapy_rep.pages.usage_lookup import lookup_of
from scrapy_rep.protocol.usage import Usage
from scrapy_rep.protocol.usage.aipref import header_statements
from scrapy_rep.protocol.usage.noai import page_statements
from scrapy_rep.protocol.usage.rsl import link_licenses
from scrapy_rep.protocol.usage.tdmrep import POLICY, RESERVATION, from_headers, from_html

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.pages.usage_lookup import UsageLookup

_known: WeakKeyDictionary[Response, Usage] = WeakKeyDictionary()


def usage(response: Response) -> Usage:
    """Return what its site says about the use of *response*: training, search, answering, …

    Looks at the page and its headers, and at the robots.txt by which the crawl fetched it; at
    tdmrep.json with ``REP_TDMREP``. Fetches nothing.

    :raises ModuleNotFoundError: if there is a ``Content-Usage``, and the extra ``usage`` is not
        installed
    """
    found = _known.get(response)
    if found is None:
        request = response.request
        lookup = _lookup_behind(request) if request is not None else None
        found = usage_of(response, request, lookup, chain_behind(request))
    return found


def usage_of(
    response: Response,
    request: Request | None,
    lookup: UsageLookup | None,
    chain: tuple[str, ...],
) -> Usage:
    """Return the same for a crawl that is known, and remember it.

    :param request: what *response* answers
    """
    headers = response.headers
    robots = (
        lookup.robots(request, chain) if lookup is not None and request is not None else Usage()
    )
    statements = [
        *robots.statements,
        *header_statements(headers.getlist("Content-Usage")),
        *page_statements(page_rules(response, chain)),
    ]
    tdm, sha256 = None, None
    if is_html(response):
        tdm = from_html(response.body, encoding_of(response))
    tdm = tdm or from_headers(headers.getlist(RESERVATION), headers.getlist(POLICY))
    if lookup is not None and request is not None and tdm is None:
        tdm, sha256 = lookup.tdmrep(request)
    if tdm is not None:
        statements.append(tdm.statement)
    found = _known[response] = replace(
        robots,
        statements=tuple(statements),
        licenses=tuple(dict.fromkeys([*robots.licenses, *link_licenses(headers.getlist("Link"))])),
        tdm_policy=tdm.policy if tdm is not None else None,
        tdmrep_sha256=sha256,
    )
    return found


def _lookup_behind(request: Request) -> UsageLookup | None:
    """Return that of the crawl that *request* is of; of several one that knows the origin."""
    for agents in crawls_behind(request):
        if agents.crawler.engine is None:
            continue
        rep = agents.crawler.get_downloader_middleware(RepMiddleware)
        if rep is not None and lookup_of(rep).known(request)[1] is not None:
            return lookup_of(rep)
    return None
