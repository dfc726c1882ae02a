from scrapy import Request
from tests.test_origins import _odd
from tests.crawling import crawl
async def test_probe(sites):
    site = sites.add(robots="User-agent: *\nDisallow: /private\n")
    rs=[]
    for u in _odd(site):
        try: rs.append(Request(u))
        except ValueError as e: print("REFUSED", repr(u[:60]), e)
    result = await crawl(rs, {"REP_UNREACHABLE":"drop", "RETRY_ENABLED": False})
    for r in result.spider.responses: print("OK", r.url[:80], r.status)
    for r, e in result.spider.errors: print("ERR", r.url[:80], repr(e)[:150])
    seen = {r.url for r, e in result.spider.errors} | {r.request.url for r in result.spider.responses}
    for r in rs:
        if r.url not in seen: print("LOST", r.url[:100])
    for x in result.records:
        if x.levelno>=30: print("LOG", x.levelname, x.getMessage()[:300], x.exc_info and repr(x.exc_info[1]))
