"""What an answer means (REP.md section 3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_rep.protocol.availability import Outcome, outcome_of
from tests.protocol.tables import google_only, rfc9309, rows

STATUSES = [
    *((status, Outcome.RULES, "2xx: the body counts") for status in (200, 201, 203, 204, 206, 226)),
    *(
        (status, Outcome.MISSING, "3xx that can't be followed: as 404")
        for status in (300, 301, 302, 303, 304, 305, 307, 308, 399)
    ),
    *(
        (status, Outcome.MISSING, "4xx: no restrictions")
        for status in (400, 401, 402, 403, 404, 405, 406, 407, 408, 410, 418, 428, 430, 451, 499)
    ),
    (429, Outcome.UNREACHABLE, "429: too many requests"),
    *(
        (status, Outcome.UNREACHABLE, "5xx: unreachable")
        for status in (500, 501, 502, 503, 504, 505, 508, 511, 520, 529, 599)
    ),
]
RULES = b"User-agent: *\nDisallow: /\n"


@rfc9309
@pytest.mark.parametrize(("status", "outcome"), rows("3", STATUSES))
def test_the_status_decides_the_outcome_whatever_the_body(status: int, outcome: Outcome) -> None:
    for body in (b"", RULES, b"<html><title>Hello</title></html>"):
        assert outcome_of(status, body) is outcome


def test_outcomes_have_the_names_that_stats_use() -> None:
    """They stand in stats."""
    assert {outcome.value for outcome in Outcome} == {"rules", "missing", "unreachable"}


def page(title: str, charset: str = "utf-8") -> bytes:
    return f'<head><meta charset="{charset}"><title>{title}</title>'.encode(charset)


NOT_FOUND = [
    (b"<html><head><title>404 Not Found</title></head></html>", "the title"),
    (b"<title>404</title>", "a number alone"),
    (b"<title>Error 404 (Not Found)!!1</title>", "a number among words"),
    (b"<title>Page not found | Example</title>", "words and the site's name"),
    (b"<title>Example Shop &#8211; 404 &#8211; File not found</title>", "the same in front"),
    (b"<TITLE>PAGE NOT FOUND</TITLE>", "in capitals"),
    (b'<title lang="en">\n  Not\n  Found\n</title>', "attributes and line ends"),
    (b"<title>Example</title><h1>404 Not Found</h1>", "the first heading"),
    (b"<h1>Not Found</h1><p>The requested URL was not found on this server.</p>", "no title"),
    (b"<title>Oops</title><h2 class='x'>Page <b>not</b> found</h2>", "a heading with tags"),
    (b"\xff\xfe\x00<title>404 \xe9</title>", "bytes that are not UTF-8"),
    *(
        (page(title), title)
        for title in (
            "404: Not Found", "Error 404", "HTTP Status 404 – Not Found", "Object not found!",
            "404 - File or directory not found.", "Sorry, this page doesn’t exist",
            "Seite nicht gefunden", "Fehler 404: Die Seite wurde nicht gefunden | Müller GmbH",
            "Page introuvable", "Erreur 404 – Page non trouvée", "Página no encontrada",
            "No se encontró la página", "Pagina non trovata", "Página não encontrada",
            "Pagina niet gevonden", "Nie znaleziono strony", "Strona nie istnieje",
            "Страница не найдена", "Ошибка 404 - Страница не найдена", "页面未找到", "404错误",
            "頁面不存在", "找不到页面 - 示例", "ページが見つかりません", "404エラー",
            "お探しのページは見つかりませんでした。", "페이지를 찾을 수 없습니다", "Sayfa bulunamadı",
            "SAYFA BULUNAMADI",
        )
    ),
    *(
        (page(title, charset), f"in {charset}")
        for title, charset in {
            "Página no encontrada": "iso-8859-1",
            "Strona nie została znaleziona": "iso-8859-2",
            "Страница не найдена": "windows-1251",
            "Sayfa bulunamadı": "windows-1254",
            "页面未找到": "gbk",
            "頁面不存在": "big5",
            "ページが見つかりません": "shift_jis",
            "페이지를 찾을 수 없습니다": "euc-kr",
        }.items()
    ),
]  # fmt: skip
FOUND = [
    (b"", "no page"),
    (b"<title>503 Service Unavailable</title><h1>Service Unavailable</h1>", "unavailable"),
    (b"<title>500 Internal Server Error</title>", "a server error"),
    (b"<title>Maintenance</title><p>404 not found</p>", "the words only in the text"),
    (b"<title>Maintenance</title><!-- page not found template -->", "the words in a comment"),
    (b"<h1>Error</h1><h1>404 Not Found</h1>", "the words only in the second heading"),
    (b"<title>Error 40404</title>", "a longer number"),
    (b"<title>Upstream not foundry</title>", "a longer word"),
    (RULES, "rules"),
    *(
        (page(title), title)
        for title in (
            "503 Host Not Found", "Host not found", "Base table or view not found",
            "SQLSTATE[42S02]: Base table or view not found", "Class &quot;App&quot; not found",
            "Vite manifest not found", "Backend server not found", "Database not found",
            "404.com | 521: Web server is down", "Not Found | 503", "404 Host",
            "Not Found - Backend", "Not found: class App", "Site not found", "Domain not found",
            "Page not found on upstream server", "Not Found | Serveur indisponible",
            "Error", "Fehler", "Ошибка", "エラー", "Server nicht gefunden", "Serveur introuvable",
            "Servidor no encontrado", "Сервер не найден", "服务器未找到", "サーバが見つかりません",
            "서버를 찾을 수 없습니다", "Sunucu bulunamadı", "Nie znaleziono serwera",
            "Server niet gevonden", "Server non trovato", "Servidor não encontrado",
        )
    ),
]  # fmt: skip


@google_only
@pytest.mark.parametrize("body", rows("3 soft 404", NOT_FOUND))
def test_a_5xx_with_a_not_found_page_means_missing(body: bytes) -> None:
    for status in (500, 502, 503):
        assert outcome_of(status, body) is Outcome.MISSING
        assert outcome_of(status, body, soft_404=False) is Outcome.UNREACHABLE


@google_only
@pytest.mark.parametrize("body", rows("3 no soft 404", FOUND))
def test_no_soft_404(body: bytes) -> None:
    assert outcome_of(503, body) is Outcome.UNREACHABLE


@google_only
@pytest.mark.parametrize(("status", "outcome"), [(429, Outcome.UNREACHABLE), (200, Outcome.RULES)])
def test_only_5xx_can_be_a_soft_404(status: int, outcome: Outcome) -> None:
    assert outcome_of(status, NOT_FOUND[0][0]) is outcome


PIECES = [
    b"<title>",
    b"</title>",
    b"<h1",
    b">",
    b"</h1>",
    b"404",
    b"not",
    b" ",
    b"found",
    b"<",
    b"x",
]


@given(
    st.integers(0, 1000),
    st.one_of(st.binary(), st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)),
    st.booleans(),
)
def test_any_answer_has_an_outcome(status: int, body: bytes, soft_404: bool) -> None:
    assert isinstance(outcome_of(status, body, soft_404=soft_404), Outcome)


@pytest.mark.parametrize(
    "piece", [b"<title", b"<title>", b"<h1", b"<h1>", b"<h1><b", b"<", b"not "]
)
def test_a_hostile_page_is_read_quickly(piece: bytes) -> None:
    """Headings that never end: this would take minutes were it quadratic."""
    assert outcome_of(503, piece * (512_000 // len(piece))) is Outcome.UNREACHABLE
