"""REP.md sections 1 and 2: ftp:// origins, by anonymous RETR from a real FTP server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import crawl
from tests.helpers.ftp import FtpSite

pytestmark = pytest.mark.needs_reactor(reason="Scrapy's FTP download handler needs a reactor")

Ftp = Callable[..., FtpSite]


@pytest.fixture
def ftp(tmp_path: Path, ftp_site: FtpSite) -> Ftp:
    """`ftp(robots)` serves a public and a private file."""

    def serve(robots: str | bytes | None, **kwargs: Any) -> FtpSite:
        for name in ("public", "private"):
            (tmp_path / name).write_text(name)
        if robots is not None:
            (tmp_path / "robots.txt").write_bytes(
                robots.encode() if isinstance(robots, str) else robots
            )
        return ftp_site.serve(tmp_path, **kwargs)

    return serve


@pytest.mark.scrapy_api
@pytest.mark.loop
async def test_an_ftp_site_is_crawled_by_its_rules(ftp: Ftp) -> None:
    """robots.txt is fetched as `anonymous`, whatever login the page needs."""
    site = ftp(RULES)
    login = {"ftp_user": "alice", "ftp_password": "secret"}
    result = await crawl([Request(site.url("/private"), meta=login), site.url("/public")])
    assert next(name for command, name in site.commands if command == "USER") == "anonymous"
    assert ("PASS", "secret") not in site.commands
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    assert result.responses == {site.url("/public"): 200}
    assert site.count("/robots.txt") == 1
    assert site.count("/private") == 0
    assert result.stat("rep/outcome/rules") == 1
    result.assert_clean()


async def test_a_missing_file_is_no_restriction(ftp: Ftp) -> None:
    site = ftp(None)
    result = await crawl(site.url("/private"))
    assert result.responses == {site.url("/private"): 200}
    assert result.stat("rep/outcome/missing") == site.count("/robots.txt") == 1
    result.assert_clean()


async def test_refused_login_is_unreachable(ftp: Ftp) -> None:
    site = ftp(RULES, user=None)
    result = await crawl(site.url("/public"))
    assert isinstance(result.failure(site.url("/public")), RobotsUnreachable)
    assert ("RETR", "/public") not in site.commands
    assert result.stat("rep/outcome/unreachable") == 1
    result.assert_clean()


async def test_active_mode_is_left_to_scrapys_handler(ftp: Ftp) -> None:
    site = ftp(RULES)
    settings = {"FTP_PASSIVE_MODE": False, "FTP_USER": "bob", "FTP_PASSWORD": "secret"}
    result = await crawl(site.url("/private"), settings)
    assert isinstance(result.failure(site.url("/private")), RobotsDisallowed)
    names = [command for command, _ in site.commands]
    assert ("USER", "anonymous") in site.commands
    assert ("USER", "bob") not in site.commands
    assert "PORT" in names
    assert "PASV" not in names
    result.assert_clean()
