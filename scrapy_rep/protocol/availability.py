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
from itertools import product
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

if TYPE_CHECKING:
    from collections.abc import Iterator

# Numbers, and words in letters of any script.
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
# Where titles have the site's name. Not a colon: "SQLSTATE[42S02]: not found".
_SEPARATOR = re.compile(
    r"\s[-~/\u2010-\u2015]\s|\s::\s|[|\u00b7\u2022\u00ab\u00bb\u2039\u203a\uff5c\u30fb]"
)
# Of the title that Google's servers send: "Error 404 (Not Found)!!1".
_SHOUT = re.compile(r"!1{1,9}(?!\w)")

# Of Turkish and Polish, which normalization leaves.
_LETTERS = str.maketrans("\u0131\u0142", "il")

# Of a site's name.
_MAX_WORDS, _MAX_CHARACTERS = 6, 60

# Charsets in which the phrases can be written, as browsers understand their names.
_CHARSETS = {
    **dict.fromkeys(("iso-8859-1", "latin1", "windows-1252", "us-ascii"), "cp1252"),
    **dict.fromkeys(("iso-8859-2", "latin2"), "iso8859_2"),
    "iso-8859-5": "iso8859_5",
    "koi8-r": "koi8_r",
    **dict.fromkeys(("iso-8859-9", "latin5", "windows-1254"), "cp1254"),
    **dict.fromkeys(("iso-8859-15", "latin9"), "iso8859_15"),
    "windows-1250": "cp1250",
    "windows-1251": "cp1251",
    **dict.fromkeys(("gb2312", "gbk", "gb18030"), "gb18030"),
    "big5": "big5hkscs",
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "windows-31j", "x-sjis"), "cp932"),
    **dict.fromkeys(("euc-jp", "x-euc-jp"), "euc_jp"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987"), "cp949"),
}

# Each of the words goes in each of the phrases after it. "{}" is their place.
_PHRASES = {
    # English
    "page|webpage|web page|file|document|url|object|file or directory|the page|this page|"
    "that page|the file|the document|the requested page|the requested file|the requested url|"
    "the page you requested|the page you are looking for|requested page|"
    "the page you were looking for":
        "{} not found|{} was not found|{} is not found|{} cannot be found|{} can not be found|"
        "{} could not be found|{} does not exist|{} doesn t exist|"
        "{} was not found on this server|{} couldn t be found|{} can t be found|"
        "{} no longer exists",
    # German
    "seite|die seite|diese seite|webseite|datei|objekt|dokument|die angeforderte seite|"
    "die gesuchte seite|die datei|die angeforderte datei":
        "{} nicht gefunden|{} wurde nicht gefunden|{} nicht vorhanden|"
        "{} konnte nicht gefunden werden|{} existiert nicht|{} wurde leider nicht gefunden",
    # French
    "page|la page|cette page|page web|fichier|document|objet|la page demandee|"
    "la page que vous recherchez|le fichier":
        "{} introuvable|{} non trouvee|{} non trouve|{} pas trouvee|{} est introuvable|"
        "{} inexistante|{} n existe pas|{} n a pas ete trouvee|{} n existe plus",
    # Spanish
    "pagina|la pagina|esta pagina|pagina web|archivo|documento|objeto|la pagina solicitada|"
    "el archivo":
        "{} no encontrada|{} no encontrado|{} no existe|{} no se encuentra|no se encontro {}|"
        "{} no se ha encontrado|no se ha encontrado {}|no se encuentra {}|{} no fue encontrada|"
        "{} inexistente",
    # Italian
    "pagina|la pagina|questa pagina|pagina web|file|documento|oggetto|la pagina richiesta":
        "{} non trovata|{} non trovato|{} non e stata trovata|{} non esiste|{} inesistente",
    # Portuguese
    "pagina|a pagina|esta pagina|pagina web|arquivo|ficheiro|documento|objeto|a pagina solicitada":
        "{} nao encontrada|{} nao encontrado|{} nao existe|{} nao foi encontrada|"
        "{} nao foi encontrado|{} inexistente",
    # Dutch
    "pagina|de pagina|deze pagina|webpagina|bestand|document|object|de opgevraagde pagina":
        "{} niet gevonden|{} kon niet worden gevonden|{} bestaat niet|{} is niet gevonden|"
        "{} werd niet gevonden",
    # Polish
    "strona|ta strona|plik|dokument|obiekt|podana strona":
        "{} nie znaleziona|{} nie zostala znaleziona|{} nie istnieje|{} nie znaleziony|"
        "nie znaleziono {}",
    "strony|pliku|dokumentu|obiektu|takiej strony|podanej strony":
        "nie znaleziono {}|nie odnaleziono {}",
    # Russian
    "страница|страница сайта|такая страница|эта страница|запрашиваемая страница|"
    "запрошенная страница|файл|документ|объект":
        "{} не найдена|{} не найден|{} не найдено|{} не существует",
    # Chinese
    "页面|网页|该页面|此页面|您访问的页面|您要访问的页面|您要找的页面|文件|頁面|網頁|該頁面|此頁面|您要找的頁面|檔案":
        "{} 未找到|{} 没有找到|{} 不存在|{} 找不到|找不到 {}|未找到 {}|没有找到 {}|找不到 该 {}|無法找到 {}|无法找到 {}|{} 不存在 了|"
        "{} 找不到 了",
    # Japanese
    "ページ|お探しのページ|指定されたページ|このページ|ファイル|ご指定のページ|お探しの ページ":
        "{} が 見つかりません|{} は 見つかりません|{} が 見つかりませんでした|{} は 見つかりませんでした|{} は 存在しません|{} が 存在しません|{} 未検出",
    # Korean
    "페이지|페이지를|페이지가|요청하신 페이지를|파일을|해당 페이지를":
        "{} 찾을 수 없습니다|{} 찾을 수 없음|{} 찾지 못했습니다",
    "페이지가|요청하신 페이지가|해당 페이지가|존재하지 않는":
        "{} 존재하지 않습니다|{} 없습니다|{} 페이지입니다",
    # Turkish
    "sayfa|aradiginiz sayfa|bu sayfa|dosya|istenen sayfa|belge":
        "{} bulunamadi|{} mevcut degil|{} yok",
}  # fmt: skip

# These need no word beside them.
_ALONE = (
    "not found|was not found|does not exist|the resource cannot be found|nicht gefunden|"
    "introuvable|non trouve|non trouvee|no encontrado|no encontrada|non trovato|non trovata|"
    "nao encontrado|nao encontrada|niet gevonden|nie znaleziono|не найдено|не найдена|не найден|"
    "未找到|找不到|見つかりません|見つかりませんでした|찾을 수 없음|찾을 수 없습니다|bulunamadi"
)

# Around a phrase.
_NOISE = (
    "error http status code oops ooops ops sorry whoops uh oh fehler fehlercode hoppla leider "
    "erreur desole oups statut codigo lo sentimos vaya errore codice spiacenti erro desculpe "
    "fout foutmelding helaas blad kod przepraszamy ошибка код извините 错误 錯誤 抱歉 对不起 很抱歉 エラー "
    "申し訳ございません 오류 에러 죄송합니다 hata kodu uzgunuz www"
)

# No site's name beside "Not found": what was not found then isn't a page.
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


_SAYING = frozenset(
    map(
        _squashed,
        [
            *_ALONE.split("|"),
            *(
                phrase.format(page)
                for pages, phrases in _PHRASES.items()
                for page, phrase in product(pages.split("|"), phrases.split("|"))
            ),
        ],
    )
)
_SURROUNDING = frozenset(map(_squashed, _NOISE.split()))
_TELLTALE = tuple(map(_squashed, _OUTAGE.split()))


def _readings(raw: bytes, charset: str) -> list[str]:
    """Return the texts that *raw* may be. Pages are often not in what they declare."""
    try:
        return [raw.decode()]
    except UnicodeDecodeError:
        codec = _CHARSETS.get(charset) or "cp1252"
        return [raw.decode(codec, "replace"), raw.decode("utf-8", "replace")]


def _says_so(text: str) -> bool:
    text = _SHOUT.sub(" ", _plain(text))
    if _is_phrase(text):
        return True
    parts = [part for part in _SEPARATOR.split(text) if _TOKEN.search(part)]
    others = [part for part in parts if not _is_phrase(part)]
    return len(parts) > len(others) == 1 and _is_name(others[0])


def _is_phrase(text: str) -> bool:
    """Whether *text*, which is plain, says "404", "not found" or both, and no more than that."""
    words = _TOKEN.findall(text)
    number = words.count("404")
    rest = [word for word in words if word != "404"]
    while rest and rest[0] in _SURROUNDING:
        del rest[0]
    while rest and rest[-1] in _SURROUNDING:
        del rest[-1]
    return number <= 2 and ("".join(rest) in _SAYING if rest else number > 0)


def _is_name(text: str) -> bool:
    """Whether *text*, which is plain, may be a site's name, and doesn't report an outage."""
    tokens = _TOKEN.findall(text)
    whole = "".join(tokens)
    return not (
        len(tokens) > _MAX_WORDS
        or len(text) > _MAX_CHARACTERS
        or any(len(token) == 3 and token.isdigit() for token in tokens)  # another status
        or any(word in whole for word in _TELLTALE)
    )


MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

STATUSES = (100, 999)
"""The smallest and the largest valid HTTP status."""

FORBIDDEN = frozenset({401, 403})
"""The statuses that ``REP_FORBIDDEN`` is about."""

# Bytes that are searched: of a page; of a tag, or an element; for a charset, as browsers do.
_SEARCHED, _WITHIN, _CHARSET_WITHIN = 65536, 500, 1024

_CHARSET = re.compile(rb"""charset\s{0,9}=\s{0,9}["']?([a-z0-9_-]{1,20})""", re.IGNORECASE)

# A page, such as an error page sent with status 200.
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|\?xml)\b", re.IGNORECASE
)
# A rule with a path, or an empty one: not a word of a page's text or script that begins a line. Linear.
_RULE = re.compile(
    rb"(?:\A|[\r\n])[ \t\v\f]*(?:allow|diss?all?ow|diasllow|disallaw)"
    rb"(?:[^\r\n:#]*:[ \t]*(?:[/*]|[\r\n#]|\Z)|[^\r\n:# \t]*[ \t]+[/*])",
    re.IGNORECASE,
)

_TITLE = re.compile(rb"<title\b", re.IGNORECASE)
_HEADING = re.compile(rb"<h[1-6]\b", re.IGNORECASE)
_HEADING_END = re.compile(rb"</h[1-6]\s*>", re.IGNORECASE)


class Outcome(Enum):
    """What an origin's answer says about its rules."""

    RULES = "rules"
    """2xx: the body holds the rules."""
    MISSING = "missing"
    """No file: no restrictions."""
    UNREACHABLE = "unreachable"
    """No valid answer: everything is disallowed for now."""


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means. A 3xx is a redirect that can't be followed.

    A status outside 100 to 599 counts as 5xx: sites that send 999 don't want to answer.

    :param soft_404: whether a 5xx whose *body* says "not found" is a 404. Not if the answer has a
        ``Retry-After``: then the origin itself says that the trouble is temporary
    """
    if 200 <= status < 300:
        return Outcome.RULES
    if 300 <= status < 500 and status != 429:
        return Outcome.MISSING
    if soft_404 and 500 <= status < 600 and says_not_found(body):
        return Outcome.MISSING
    return Outcome.UNREACHABLE


def is_html(body: bytes) -> bool:
    """Return whether *body* is a page of HTML, or XML."""
    return _HTML.match(body) is not None


def is_challenge(status: int | None, body: bytes) -> bool:
    """Return whether an answer may be a bot wall's: 200 or 202 and a page of HTML, without a rule."""
    return status in (200, 202) and is_html(body) and _RULE.search(body) is None


def says_not_found(body: bytes) -> bool:
    """Return whether the title or the first heading of an HTML page is "404", "Page not found" or the
    like, give or take the site's name: see :mod:`~scrapy_rep.protocol.availability`."""
    head = body[:_SEARCHED]
    titles = (head[start : start + _WITHIN].partition(b"<")[0] for start in _after(_TITLE, head))
    charset = _CHARSET.search(head[:_CHARSET_WITHIN])
    declared = charset[1].decode("ascii").lower() if charset else ""
    return any(
        _says_so(reading)
        for text in (next(titles, b""), _heading(head))
        for reading in _readings(_without_tags(text), declared)
    )


def _heading(head: bytes) -> bytes:
    """Return the first heading with an end nearby; empty without one."""
    # Linear: one search for an end serves all headings before it.
    end = None
    for start in _after(_HEADING, head):
        if end is None or end.start() < start:
            end = _HEADING_END.search(head, start)
            if end is None:
                break
        if end.start() - start <= _WITHIN:
            return head[start : end.start()]
    return b""


def _after(tag: re.Pattern[bytes], head: bytes) -> Iterator[int]:
    """Yield the offset behind each tag of a kind."""
    for match in tag.finditer(head):
        end = head.find(b">", match.end(), match.end() + _WITHIN + 1)
        if end >= 0:
            yield end + 1


def _without_tags(text: bytes) -> bytes:
    """Return *text* with a blank for each tag. A pattern would not be linear."""
    out = []
    while (start := text.find(b"<")) >= 0 and (end := text.find(b">", start)) >= 0:
        out.append(text[:start])
        text = text[end + 1 :]
    return b" ".join([*out, text])
