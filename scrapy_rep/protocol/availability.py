"""What an answer to the request for robots.txt means: its HTTP status makes it rules, missing or
unreachable (REP.md section 3). 401 and 403 become "forbidden" only in origins/choices.py.

A page whose title or heading says that a file was not found means the same as a 404. It must *be* such
a phrase, give or take the site's name and punctuation. "Host not found" and "Class App not found" are
outages, and must not become permission: so phrases are compared whole.
"""

from __future__ import annotations

import re
from enum import Enum
from html import unescape
from unicodedata import combining, normalize

from w3lib.encoding import html_body_declared_encoding

# Numbers, and words in letters of any script.
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
# Where titles have the site's name. Not a colon: "SQLSTATE[42S02]: not found".
_SEPARATOR = re.compile(
    r"\s[-~/\u2010-\u2015]\s|\s::\s|[|\u00b7\u2022\u00ab\u00bb\u2039\u203a\uff5c\u30fb]"
)
# Of Turkish and Polish, which normalization leaves.
_LETTERS = str.maketrans("\u0131\u0142", "il")

# Limits of a site's name.
_MAX_WORDS, _MAX_CHARACTERS = 6, 60

# What wasn't found: in English, German, French, Spanish, Italian and Portuguese; Dutch, Polish, Russian,
# Chinese, Japanese, Korean, Turkish.
_WHAT = (
    "page|web page|file|document|url|object|file or directory|the page|this page|that page|the file|"
    "the requested page|the requested file|the requested url|the page you are looking for|"
    "the page you were looking for|"
    "seite|die seite|diese seite|webseite|datei|die datei|objekt|dokument|die angeforderte seite|"
    "la page|cette page|page web|fichier|le fichier|la page demandee|"
    "pagina|la pagina|esta pagina|pagina web|archivo|el archivo|documento|objeto|oggetto|"
    "la pagina solicitada|questa pagina|la pagina richiesta|a pagina|arquivo|ficheiro|"
    "de pagina|deze pagina|webpagina|bestand|de opgevraagde pagina|"
    "strona|ta strona|plik|obiekt|podana strona|strony|pliku|takiej strony|podanej strony|"
    "страница|страница сайта|такая страница|эта страница|запрашиваемая страница|файл|документ|объект|"
    "页面|网页|该页面|此页面|您访问的页面|您要找的页面|文件|頁面|網頁|該頁面|此頁面|檔案|"
    "ページ|お探しのページ|指定されたページ|このページ|ファイル|"
    "페이지|페이지를|페이지가|요청하신 페이지를|파일을|해당 페이지를|존재하지 않는|"
    "sayfa|aradiginiz sayfa|bu sayfa|dosya"
)
# In the same order. Some of these words stand in front of what is missing.
_MISSING = (
    "is not found|cannot be found|can not be found|could not be found|doesn t exist|no longer exists|"
    "was not found on this server|couldn t be found|can t be found|"
    "wurde nicht gefunden|nicht vorhanden|konnte nicht gefunden werden|existiert nicht|"
    "pas trouvee|est introuvable|inexistante|n existe pas|n a pas ete trouvee|n existe plus|"
    "no existe|no se encuentra|no se encontro|no se ha encontrado|no fue encontrada|inexistente|"
    "non e stata trovata|non esiste|inesistente|nao existe|nao foi encontrada|nao foi encontrado|"
    "kon niet worden gevonden|bestaat niet|is niet gevonden|werd niet gevonden|"
    "nie znaleziona|nie zostala znaleziona|nie istnieje|nie odnaleziono|не существует|"
    "没有找到|不存在|無法找到|无法找到|が見つかりません|は見つかりません|が見つかりませんでした|は見つかりませんでした|"
    "は存在しません|が存在しません|찾지 못했습니다|존재하지 않습니다|없습니다|페이지입니다|mevcut degil|yok"
)

# These need no word beside them.
_ALONE = (
    "not found|was not found|does not exist|the resource cannot be found|nicht gefunden|"
    "introuvable|non trouve|non trouvee|no encontrado|no encontrada|non trovato|non trovata|"
    "nao encontrado|nao encontrada|niet gevonden|nie znaleziono|не найдено|не найдена|не найден|"
    "未找到|找不到|見つかりません|見つかりませんでした|찾을 수 없음|찾을 수 없습니다|bulunamadi"
)

# Words that may surround a phrase.
_NOISE = (
    "error http status code oops ooops ops sorry whoops uh oh fehler fehlercode hoppla leider "
    "erreur desole oups statut codigo lo sentimos vaya errore codice spiacenti erro desculpe "
    "fout foutmelding helaas blad kod przepraszamy ошибка код извините 错误 錯誤 抱歉 对不起 很抱歉 エラー "
    "申し訳ございません 오류 에러 죄송합니다 hata kodu uzgunuz www"
)

# Words that, beside "Not found", aren't a site's name: something other than a page was not found.
_OUTAGE = (
    "exception error fatal warning server host service backend upstream gateway proxy database "
    "mysql sql connection timeout timed unavailable offline overload maintenance manifest class "
    "table view module model route controller template function method package library driver "
    "dns domain origin internal temporar failed failure crash bad down wartung fehler storung "
    "serveur indisponible erreur panne servidor mantenimiento disponible manutenc manutenzione "
    "indisponivel onderhoud niedostep serwer blad ошибка сервер недоступ обслуживан 服务 伺服 错误 维护 "
    "サーバ エラー メンテ 서버 오류 점검 sunucu bakim hata"
)


def _plain(text: str) -> str:
    """Return *text* without case, accents and other ways to write the same."""
    text = normalize("NFKD", unescape(text)).casefold().translate(_LETTERS)
    return "".join(one for one in normalize("NFKD", text) if not combining(one))


def _squashed(text: str) -> str:
    return "".join(_TOKEN.findall(_plain(text)))


_NOUNS = frozenset(map(_squashed, _WHAT.split("|")))
_SAYING = frozenset(map(_squashed, _ALONE.split("|")))
_PREDICATES = _SAYING.union(map(_squashed, _MISSING.split("|")))
_SURROUNDING = frozenset(map(_squashed, _NOISE.split()))
_TELLTALE = tuple(map(_squashed, _OUTAGE.split()))


def _says_so(text: str) -> bool:
    text = (
        _plain(text).strip().removesuffix("!!1")
    )  # "Error 404 (Not Found)!!1" is Google's
    if _is_phrase(text):
        return True
    parts = [part for part in _SEPARATOR.split(text) if _TOKEN.search(part)]
    others = [part for part in parts if not _is_phrase(part)]
    if not len(parts) > len(others) == 1:
        return False
    # What is beside the phrase may be the site's name, but not another status or an outage.
    tokens = _TOKEN.findall(others[0])
    whole = "".join(tokens)
    return not (
        len(tokens) > _MAX_WORDS
        or len(others[0]) > _MAX_CHARACTERS
        or any(len(token) == 3 and token.isdigit() for token in tokens)
        or any(word in whole for word in _TELLTALE)
    )


def _is_phrase(text: str) -> bool:
    """Whether plain *text* says "404", "not found" or both, and no more than that."""
    words = _TOKEN.findall(text)
    rest = [word for word in words if word != "404"]
    while rest and rest[0] in _SURROUNDING:
        del rest[0]
    while rest and rest[-1] in _SURROUNDING:
        del rest[-1]
    said = "".join(rest)
    missing = said in _SAYING or any(
        (said.startswith(noun) and said[len(noun) :] in _PREDICATES)
        or (said.endswith(noun) and said[: -len(noun)] in _PREDICATES)
        for noun in _NOUNS
    )
    return words.count("404") <= 2 and (missing if rest else "404" in words)


MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

UNCHANGED = 304
"""The status that answers a question which a request for robots.txt doesn't ask."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

STATUSES = (100, 999)
"""The smallest and the largest valid HTTP status."""

FORBIDDEN = frozenset({401, 403})
"""The statuses that ``REP_FORBIDDEN`` is about."""

WALL_SIGNS = (
    "cf-mitigated: challenge",
    "x-amzn-waf-action: challenge",
    "x-amzn-waf-action: captcha",
)
"""The headers by which a bot wall says that it answered in place of the site, whatever the status: as the
documentation of Cloudflare and of AWS WAF names them. The latter sends no page to a client that doesn't
ask for HTML."""

# Of a 206: the first byte, the last one, and how many there are.
_RANGE = re.compile(
    r"\s*bytes\s+([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15})\s*", re.IGNORECASE
)

# How many bytes of a page are searched.
_SEARCHED = 65536

# A web page, such as an error page sent with status 200.
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|\?xml)\b", re.IGNORECASE
)
# A rule with a path or an empty one, not a word of a page's text that begins a line. Linear.
_RULE = re.compile(
    rb"(?:\A|[\r\n])[ \t\v\f]*(?:allow|diss?all?ow|diasllow|disallaw)"
    rb"(?:[^\r\n:#]*:[ \t]*(?:[/*]|[\r\n#]|\Z)|[^\r\n:# \t]*[ \t]+[/*])",
    re.IGNORECASE,
)

# The first one, and its text if it ends soon.
_TITLE = re.compile(rb"<title\b(?:[^<>]{0,500}>([^<]{0,500}))?", re.IGNORECASE)
_HEADING = re.compile(
    rb"<h[1-6]\b(?:[^<>]{0,500}>(.{0,500}?)</h[1-6]\s*>)?", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(rb"<[^<>]*>")


class Outcome(Enum):
    """What an origin's answer says about its rules."""

    RULES = "rules"
    """2xx: the body holds the rules."""
    MISSING = "missing"
    """No file: no restrictions."""
    UNREACHABLE = "unreachable"
    """No valid answer: everything is disallowed for now."""


def is_whole(content_range: str | None) -> bool:
    """Return whether a 206 with this ``Content-Range`` has all of the file."""
    sent = _RANGE.fullmatch(content_range or "")
    return sent is not None and int(sent[1]) == 0 and int(sent[2]) + 1 == int(sent[3])


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means. A 3xx is a redirect that can't be followed.

    A 304 says nothing to somebody who has no copy. A status outside 100 to 599 counts as 5xx: sites that send 999 don't want to answer.

    :param soft_404: whether a 5xx whose *body* says "not found" is a 404. Not if the answer has a
        ``Retry-After``: then the origin itself says that the trouble is temporary
    """
    if 200 <= status < 300:
        return Outcome.RULES
    if 300 <= status < 500 and status not in (UNCHANGED, 429):
        return Outcome.MISSING
    if soft_404 and 500 <= status < 600 and is_soft_404(body):
        return Outcome.MISSING
    return Outcome.UNREACHABLE


def is_html(body: bytes) -> bool:
    """Return whether *body* is a page of HTML, or XML."""
    return _HTML.match(body) is not None


def is_challenge(status: int | None, body: bytes) -> bool:
    """Return whether an answer may be a bot wall's: 200 or 202 and a page of HTML, without a rule."""
    return status in (200, 202) and is_html(body) and _RULE.search(body) is None


def is_soft_404(body: bytes) -> bool:
    """Return whether an HTML page's title or first heading is "404", "Page not found" or the like."""
    head = body[:_SEARCHED]
    found = (pattern.search(head) for pattern in (_TITLE, _HEADING))
    texts = [_TAG.sub(b" ", match[1]) for match in found if match and match[1]]
    return any(_says_so(_decoded(text, head)) for text in texts)


def _decoded(text: bytes, head: bytes) -> str:
    try:
        return text.decode()
    except (
        UnicodeDecodeError
    ):  # whatever the page declares, many are UTF-8, or else Latin
        charset = html_body_declared_encoding(head)
        try:
            return text.decode(
                "cp1252" if charset in (None, "utf-8") else charset, "replace"
            )
        except (LookupError, ValueError):  # no charset of text
            return ""
