"""Passwords in URLs, whatever characters they have: never in a message of ours, not even in part."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_rep.engine.text import text_of, without_password
from scrapy_rep.settings import RepSettings
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.servers import Sites

PASSWORDS = ["s3cret", "s3:cret", "s3@cret", "s3:c@r:e@t", "s3/c@ret", "s3/c:r?e#t", "@s3", ":s3@"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize(
    "uri", ["ftp://me:{}@host:21/d/%(time)s", "redis://:{}@host/0", "s3://k:{}@b/x"]
)
def test_no_part_is_shown(uri: str, password: str) -> None:
    whole, hidden = uri.format(password), uri.format("***")
    assert without_password(whole) == hidden
    assert text_of(ValueError(f"no such proxy: {whole}.")) == f"ValueError: no such proxy: {hidden}"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "x",
        "d.jsonl",
        "/data/a:b@c",
        "file:///data/a:b@c",
        "ftp://me@h/x",
        "C:\\a@b",
        "s3://b/a@b",
    ],
)
def test_what_has_no_password_stays(uri: str) -> None:
    assert without_password(uri) == uri
    assert text_of(ValueError(uri)) == "ValueError" + (f": {uri}" if uri else "")


@pytest.mark.parametrize("setting", ["REP_DECISIONS", "REP_REPORT"])
async def test_in_a_crawl(sites: Sites, tmp_path: Path, setting: str) -> None:
    """Of a URI that can't be written to, and of one with a placeholder that means nothing."""
    site = sites.add(robots=RULES)
    for uri in (
        "ftp://me:xyz:zyx@x/y@127.0.0.1:1/d",
        "no://me:xyz@zyx@h/d",
        "ftp://me:xyz:z@zyx@h/%(xx)s",
    ):
        result = await crawl(site.url("/private"), {setting: uri})
        ours = [one.getMessage() for one in result.records if one.name.startswith("scrapy_rep")]
        assert any("***" in one for one in ours)
        assert not [one for one in ours if "xyz" in one or "zyx" in one]


def test_in_wrong_settings() -> None:
    from scrapy.settings import Settings

    from scrapy_rep.exceptions import SettingsError

    with pytest.raises(SettingsError) as raised:
        RepSettings.from_settings(Settings({"REP_CACHE_REDIS_URL": [b"redis://:pa:ss@h"]}))
    assert "***@h" in str(raised.value)
    assert "pa" not in str(raised.value).replace("path", "")
