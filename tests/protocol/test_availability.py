"""What an answer means (REP.md section 3)."""

from __future__ import annotations

from functools import partial
from itertools import starmap

from scrapy_rep.protocol.availability import Outcome, outcome_of
from tests.helpers.timing import in_a_slice

STATUSES = {
    Outcome.RULES: "200 201 203 204 206 226",
    Outcome.MISSING: "300 301 305 308 399 400 401 403 404 407 408 410 418 428 430 451 499",
    Outcome.UNREACHABLE: "304 429 500 501 502 503 504 508 511 520 599 999 100",
}
RULES = b"User-agent: *\nDisallow: /\n"


def test_the_status_decides_the_outcome_whatever_the_body() -> None:
    for outcome, statuses in STATUSES.items():
        for status in map(int, statuses.split()):
            for body in (b"", RULES, b"<html><title>Hello</title></html>"):
                assert outcome_of(status, body) is outcome, (status, body)


def page(title: str, charset: str = "utf-8") -> bytes:
    return f'<head><meta charset="{charset}"><title>{title}</title>'.encode(charset)


# Titles of pages that were not found, headings of such pages, and more than that.
NOT_FOUND = [
    b"<html><head><title>404 Not Found</title></head></html>",
    b"<title>404</title>",
    b"<title>Error 404 (Not Found)!!1</title>",
    b"<title>Page not found | Example</title>",
    b"<title>Example Shop &#8211; 404 &#8211; File not found</title>",
    b'<TITLE lang="en">\n  PAGE NOT\n  FOUND\n</TITLE>',
    b"<title>Example</title><h1>404 Not Found</h1>",
    b"<h1>Not Found</h1><p>The requested URL was not found on this server.</p>",
    b"<title>Oops</title><h2 class='x'>Page <b>not</b> found</h2>",
    *map(page, (
        "404: Not Found", "Error 404", "HTTP Status 404 – Not Found", "Object not found!",
        "404 - File or directory not found.", "Sorry, this page doesn’t exist",
        "Seite nicht gefunden", "Fehler 404: Die Seite wurde nicht gefunden | Müller GmbH",
        "Page introuvable", "Erreur 404 – Page non trouvée", "Página no encontrada",
        "No se encontró la página", "Pagina non trovata", "Página não encontrada",
        "Pagina niet gevonden", "Nie znaleziono strony", "Strona nie istnieje", "Strona nie znaleziona",
        "The page you were looking for doesn't exist (404)",
        "Страница не найдена", "Ошибка 404 - Страница не найдена", "页面未找到", "404错误",
        "頁面不存在", "找不到页面 - 示例", "ページが見つかりません", "404エラー",
        "お探しのページは見つかりませんでした。", "페이지를 찾을 수 없습니다", "Sayfa bulunamadı",
        "SAYFA BULUNAMADI",
    )),
    *starmap(page, {
        "Página no encontrada": "iso-8859-1",
        "Strona nie została znaleziona": "iso-8859-2",
        "Страница не найдена": "windows-1251",
        "Sayfa bulunamadı": "windows-1254",
        "页面未找到": "gbk",
        "頁面不存在": "big5",
        "ページが見つかりません": "shift_jis",
        "페이지를 찾을 수 없습니다": "euc-kr",
    }.items()),
    page("404 ページが見つかりません", "cp932").replace(b"cp932", b"windows-31j"),
]  # fmt: skip
# Outages; and the words in a text, in a comment, in the second heading, in longer words.
FOUND = [
    *(b"", RULES, b"<title>503 Service Unavailable</title><h1>Service Unavailable</h1>"),
    b"<title>500 Internal Server Error</title>",
    b"<title>Maintenance</title><p>404 not found</p>",
    b"<title>Maintenance</title><!-- page not found template -->",
    b"<h1>Error</h1><h1>404 Not Found</h1>",
    b"<h1>Service Unavailable<h2>404 Not Found</h2>",
    b"<h1>503 Service Unavailable<h1>Not Found</h1>",
    b"<h1>Service Unavailable</h1 <h2>Not Found</h2>",
    b'<h1 title="<b>">Service Unavailable</h1><h2>Not Found</h2>',
    b'<title lang="<">Down</title><svg><title>404</title>',
    rb"<meta charset=unicode_escape><title>\d not found",
    *map(page, (
        "Error 40404", "Upstream not foundry", "503 Host Not Found", "Host not found",
        "Base table or view not found", "SQLSTATE[42S02]: Base table or view not found",
        "Class &quot;App&quot; not found", "Vite manifest not found", "Backend server not found",
        "Database not found", "404.com | 521: Web server is down", "Not Found | 503", "404 Host",
        "Not Found - Backend", "Not found: class App", "Site not found", "Domain not found",
        "Page not found on upstream server", "Not Found | Serveur indisponible",
        "Error", "Fehler", "Ошибка", "エラー", "Server nicht gefunden", "Serveur introuvable",
        "Servidor no encontrado", "Сервер не найден", "服务器未找到", "サーバが見つかりません",
        "서버를 찾을 수 없습니다", "Sunucu bulunamadı", "Nie znaleziono serwera",
        "Server niet gevonden", "Server non trovato", "Servidor não encontrado",
    )),
]  # fmt: skip


def test_a_5xx_with_a_not_found_page_means_missing() -> None:
    assert [
        body for body in NOT_FOUND if outcome_of(500, body) is not Outcome.MISSING
    ] == []
    assert [
        body for body in FOUND if outcome_of(500, body) is not Outcome.UNREACHABLE
    ] == []


def test_only_5xx_can_be_a_soft_404_and_not_if_it_is_switched_off() -> None:
    body = NOT_FOUND[0]
    assert outcome_of(503, body) is Outcome.MISSING
    assert outcome_of(503, body, soft_404=False) is Outcome.UNREACHABLE
    assert outcome_of(429, body) is Outcome.UNREACHABLE
    assert outcome_of(200, body) is Outcome.RULES


def test_a_hostile_page_is_read_quickly() -> None:
    """Headings that never end: this would take minutes were it quadratic."""
    for piece in (
        b"<title",
        b"<title>",
        b"<h1",
        b"<h1>",
        b"<h1><b",
        b"<",
        b"not ",
        b"<h1></h1>",
    ):
        body = piece * (512_000 // len(piece))
        assert in_a_slice(partial(outcome_of, 503, body)) is Outcome.UNREACHABLE
