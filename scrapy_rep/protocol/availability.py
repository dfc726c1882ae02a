"""What an answer to the request for robots.txt means: its HTTP status makes it rules,
missing or unreachable (REP.md section 3). 401 and 403 become "forbidden" only in
origins/choices.py.

An error page whose title or heading says that a file was not found means the same as a
404. The title or heading must *be* such a phrase, and may have only the site's name and
punctuation beside it. "Host not found" and "Class App not found" are outages, and must
not become permission, so phrases are compared whole.
"""

from __future__ import annotations

import re
from enum import Enum
from html import unescape
from unicodedata import combining, normalize

from w3lib.encoding import html_body_declared_encoding

# Finds numbers, and words in letters of any script.
_WORD_OR_NUMBER = re.compile(r"\d+|[^\W\d_]+")
# What separates the site's name from the rest of a title. A colon doesn't:
# "SQLSTATE[42S02]: not found" is an outage.
_SEPARATOR = re.compile(
    r"\s[-~/\u2010-\u2015]\s|\s::\s|[|\u00b7\u2022\u00ab\u00bb\u2039\u203a\uff5c\u30fb]"
)
# Letters of Turkish and Polish that normalization leaves as they are, and what people
# write instead.
_LETTERS = str.maketrans("\u0131\u0142", "il")

# A site's name, which may stand beside a phrase, has at most this many words. What has
# more is a sentence.
_MAX_SITE_NAME_WORDS = 6
# A site's name has at most this many characters.
_MAX_SITE_NAME = 60
# In a title that says nothing else, "404" stands at most this often: as a number, and
# as a status.
_MAX_404 = 2

# What wasn't found: in English, German, French, Spanish, Italian, Portuguese, Dutch,
# Polish, Russian, Chinese, Japanese, Korean and Turkish.
_THINGS = (
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
# What says that one of _THINGS is missing, in the same languages. Some of it stands
# before the thing, some after it.
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

# Phrases that say that something is missing without naming it.
_ALONE = (
    "not found|was not found|does not exist|the resource cannot be found|nicht gefunden|"
    "introuvable|non trouve|non trouvee|no encontrado|no encontrada|non trovato|non trovata|"
    "nao encontrado|nao encontrada|niet gevonden|nie znaleziono|не найдено|не найдена|не найден|"
    "未找到|找不到|見つかりません|見つかりませんでした|찾을 수 없음|찾을 수 없습니다|bulunamadi"
)

# Words that may stand before or after a phrase and say nothing.
_NOISE = (
    "error http status code oops ooops ops sorry whoops uh oh fehler fehlercode hoppla leider "
    "erreur desole oups statut codigo lo sentimos vaya errore codice spiacenti erro desculpe "
    "fout foutmelding helaas blad kod przepraszamy ошибка код извините 错误 錯誤 抱歉 对不起 很抱歉 エラー "
    "申し訳ございません 오류 에러 죄송합니다 hata kodu uzgunuz www"
)

# Words, and stems of words, that aren't part of a site's name. Beside "Not found", they
# say that something other than a page was not found.
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
    """Return *text* in lower case, without accents, and normalized, so that it is the
    same however it was written."""
    text = normalize("NFKD", unescape(text))
    text = text.casefold().translate(_LETTERS)
    # Case folding may bring back what has to be normalized. In normalized text, accents
    # are characters of their own.
    characters = normalize("NFKD", text)
    return "".join(letter for letter in characters if not combining(letter))


def _squashed(text: str) -> str:
    """Return only the words and numbers of *text*, without blanks, since Chinese has
    none between words."""
    return "".join(_WORD_OR_NUMBER.findall(_plain(text)))


# The phrases and words of the lists above, squashed.
_SQUASHED_THINGS = frozenset(map(_squashed, _THINGS.split("|")))
_SQUASHED_ALONE = frozenset(map(_squashed, _ALONE.split("|")))
_SQUASHED_MISSING = frozenset(map(_squashed, _MISSING.split("|")))
_SQUASHED_NOISE = frozenset(map(_squashed, _NOISE.split()))
_SQUASHED_OUTAGE = tuple(map(_squashed, _OUTAGE.split()))
# What says, before or after a thing, that it is missing.
_PREDICATES = _SQUASHED_ALONE | _SQUASHED_MISSING


def _says_not_found(text: str) -> bool:
    """Return whether a title or heading is a phrase such as "404 - Page not found",
    alone or beside the name of the site."""
    # Google's own error page is called "Error 404 (Not Found)!!1".
    text = _plain(text).strip().removesuffix("!!1")
    if _is_phrase(text):
        return True
    all_parts = _SEPARATOR.split(text)
    parts = [part for part in all_parts if _WORD_OR_NUMBER.search(part)]
    other_parts = [part for part in parts if not _is_phrase(part)]
    has_phrase = len(other_parts) < len(parts)
    if not has_phrase or len(other_parts) != 1:
        return False
    return _may_be_site_name(other_parts[0])


def _may_be_site_name(text: str) -> bool:
    """Return whether *text*, as ``_plain()`` returns it, may be a site's name: it is
    short, and names neither another status nor an outage."""
    words = _WORD_OR_NUMBER.findall(text)
    if len(words) > _MAX_SITE_NAME_WORDS or len(text) > _MAX_SITE_NAME:
        return False
    for word in words:
        is_status = len(word) == 3 and word.isdigit()
        if is_status:
            return False
    squashed = "".join(words)
    return not any(outage in squashed for outage in _SQUASHED_OUTAGE)


def _is_phrase(text: str) -> bool:
    """Return whether *text*, as ``_plain()`` returns it, says "404", "not found" or
    both, and no more."""
    all_words = _WORD_OR_NUMBER.findall(text)
    if all_words.count("404") > _MAX_404:
        return False
    words = [word for word in all_words if word != "404"]
    while words and words[0] in _SQUASHED_NOISE:
        del words[0]
    while words and words[-1] in _SQUASHED_NOISE:
        del words[-1]
    if not words:
        return "404" in all_words
    return _says_something_is_missing("".join(words))


def _says_something_is_missing(phrase: str) -> bool:
    """Return whether a squashed *phrase* is one of ``_ALONE``, or a thing beside a
    predicate."""
    if phrase in _SQUASHED_ALONE:
        return True
    for noun in _SQUASHED_THINGS:
        if phrase.startswith(noun) and phrase.removeprefix(noun) in _PREDICATES:
            return True
        if phrase.endswith(noun) and phrase.removesuffix(noun) in _PREDICATES:
            return True
    return False


MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

UNCHANGED = 304
"""The status "not modified". It answers a conditional request, and ours for robots.txt
isn't one."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""The statuses of redirects that are followed."""

STATUSES = (100, 999)
"""The smallest and the largest valid HTTP status."""

FORBIDDEN = frozenset({401, 403})
"""The statuses that ``REP_FORBIDDEN`` is about."""

WALL_SIGNS = (
    "cf-mitigated: challenge",
    "x-amzn-waf-action: challenge",
    "x-amzn-waf-action: captcha",
)
"""The headers by which a bot wall says, with any status, that it answered in place of
the site. Cloudflare and AWS WAF document them. AWS WAF sends no page to a client that
doesn't ask for HTML, so that only the header tells."""

# The Content-Range of an answer with status 206, part of a file.
_RANGE = re.compile(
    r"\s*bytes\s+(?P<first>[0-9]{1,15})-(?P<last>[0-9]{1,15})/(?P<size>[0-9]{1,15})\s*",
    re.IGNORECASE,
)

# So many bytes of a page are searched for a title and a heading.
_MAX_SEARCHED = 65536

# The beginning of a web page, such as an error page sent with status 200.
_WEB_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|\?xml)\b", re.IGNORECASE
)
# A line of robots.txt that is a rule, with a path or empty; not a line of a page's text
# that only begins with such a word. Searching takes linear time.
_RULE_LINE = re.compile(
    rb"(?:\A|[\r\n])[ \t\v\f]*(?:allow|diss?all?ow|diasllow|disallaw)"
    rb"(?:[^\r\n:#]*:[ \t]*(?:[/*]|[\r\n#]|\Z)|[^\r\n:# \t]*[ \t]+[/*])",
    re.IGNORECASE,
)

# A title or a heading. Group 1: its text, if it ends soon.
_TITLE = re.compile(rb"<title\b(?:[^<>]{0,500}>([^<]{0,500}))?", re.IGNORECASE)
_HEADING = re.compile(
    rb"<h[1-6]\b(?:[^<>]{0,500}>(.{0,500}?)</h[1-6]\s*>)?", re.IGNORECASE | re.DOTALL
)
_ANY_TAG = re.compile(rb"<[^<>]*>")


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
    if sent is None:
        return False
    first, last, size = map(int, sent.groups())
    # Bytes are counted from 0.
    return first == 0 and last == size - 1


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means. A 3xx is a redirect that can't be
    followed.

    A 304 says nothing to somebody who has no copy. A status outside 100 to 599 counts
    as 5xx, since sites that send 999 don't want to answer.

    :param soft_404: whether a 5xx whose *body* says "not found" counts as a 404; False
        if the answer has a ``Retry-After``, by which the origin itself says that the
        trouble is temporary
    """
    if 200 <= status < 300:
        return Outcome.RULES
    # The status 429, too many requests, counts as 5xx.
    if 300 <= status < 500 and status not in (UNCHANGED, 429):
        return Outcome.MISSING
    if soft_404 and 500 <= status < 600 and is_soft_404(body):
        return Outcome.MISSING
    return Outcome.UNREACHABLE


def is_html(body: bytes) -> bool:
    """Return whether *body* is a page of HTML, or XML."""
    return _WEB_PAGE.match(body) is not None


def is_challenge(status: int | None, body: bytes) -> bool:
    """Return whether an answer may be a bot wall's: 200 or 202 and a page of HTML,
    without a rule."""
    if status not in (200, 202) or not is_html(body):
        return False
    return _RULE_LINE.search(body) is None


def is_soft_404(body: bytes) -> bool:
    """Return whether an HTML page's title or first heading is "404", "Page not found"
    or the like."""
    head = body[:_MAX_SEARCHED]
    for pattern in (_TITLE, _HEADING):
        element = pattern.search(head)
        if element is None or not element[1]:
            continue
        text = _ANY_TAG.sub(b" ", element[1])
        if _says_not_found(_decoded(text, head)):
            return True
    return False


def _decoded(text: bytes, head: bytes) -> str:
    """Return *text* from a page, decoded: as UTF-8 if it is valid, else by the encoding
    that the page's *head* declares."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        charset = html_body_declared_encoding(head)
    if charset in (None, "utf-8"):
        # Most pages without a declaration, or with a wrong one, are in this encoding.
        charset = "cp1252"
    try:
        return text.decode(charset, "replace")
    except (LookupError, ValueError):  # the charset is not one of text
        return ""
