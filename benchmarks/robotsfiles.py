"""robots.txt files that are made, like real ones in size, rules, agents and wildcards."""

from __future__ import annotations

import random
import zlib
from math import exp
from statistics import NormalDist, mean, median

# Sizes are log-normal, with the median and the mean of real files; cut where hardly any is longer.
_MEDIAN, _SIGMA, _LONGEST = 570, 2.07, 200_000

# Longer than this, most are no robots.txt but a page.
_PAGE = 20_000

_AGENTS = [
    "Googlebot",
    "bingbot",
    "AhrefsBot",
    "SemrushBot",
    "MJ12bot",
    "GPTBot",
    "Yandex",
    "*",
]
_USUAL = [
    *(
        "/wp-admin/",
        "/wp-content/",
        "/wp-includes/",
        "/search",
        "/search/",
        "/cgi-bin/",
        "/admin/",
    ),
    *(
        "/login",
        "/cart",
        "/checkout/",
        "/account/",
        "/user/",
        "/api/",
        "/tmp/",  # noqa: S108
        "/private/",
    ),
    *(
        "/feed/",
        "/trackback/",
        "/misc/",
        "/includes/",
        "/modules/",
        "/profiles/",
        "/scripts/",
    ),
    *("/themes/", "/user/register/"),
]
_WILD = [
    "/*?sort=",
    "/*?page=",
    "/*.pdf$",
    "/*/print/",
    "/*?s=",
    "/*/feed/",
    "/*&sid=",
    "*/amp",
]
_PARTS = [first + second for first in "bcdfgklmnprstv" for second in "aeio"]


def made(count: int, seed: int = 1) -> list[bytes]:
    """Make so many files, from nearly empty to hundreds of kilobytes."""
    chance = random.Random(seed)
    files = [_file(chance, _size((number + 0.5) / count)) for number in range(count)]
    chance.shuffle(files)
    return files


def _size(share: float) -> int:
    """How long a file is than which that share of all is shorter."""
    return min(
        _LONGEST, max(24, int(_MEDIAN * exp(_SIGMA * NormalDist().inv_cdf(share))))
    )


def _file(chance: random.Random, size: int) -> bytes:
    # A site has words of its own, and uses them again and again.
    words = [
        "".join(chance.choices(_PARTS, k=chance.randint(2, 4)))
        for _ in range(12 + min(size, _PAGE) // 200)
    ]
    if size > _PAGE and chance.random() < 0.9:
        return _page(chance, size, words)
    # Most files name one agent, some name dozens; more than half know no wildcards.
    agents = chance.choice((0, 0.01, 0.01, 0.2))
    wild = chance.choice((0, 0, 0, 0.35, 0.7))
    lines = ["User-agent: *"]
    length = len(lines[0])
    while length < size:
        kind = chance.random()
        if kind > 1 - agents:
            line = f"\nUser-agent: {chance.choice(_AGENTS)}"
        elif kind < 0.02:
            line = f"Sitemap: https://www.{words[0]}.com/sitemap-{chance.choice(words)}.xml"
        elif kind < 0.06:
            line = f"# {' '.join(chance.choices(words, k=4))}"
        else:
            path = (
                chance.choice(_USUAL)
                if chance.random() < 0.35
                else _path(chance, words)
            )
            if chance.random() < wild:
                path = (
                    chance.choice(_WILD)
                    if chance.random() < 0.5
                    else f"{path}*{words[1]}"
                )
            line = f"{'Allow' if chance.random() < 0.12 else 'Disallow'}: {path}"
        lines.append(line)
        length += len(line) + 1
    return ("\n".join(lines) + "\n").encode()


def _page(chance: random.Random, size: int, words: list[str]) -> bytes:
    """A page instead of a robots.txt: most of the largest are."""
    lines = ["<!DOCTYPE html><html><head><title>Welcome</title></head><body>"]
    length = len(lines[0])
    while length < size:
        link = _path(chance, words)
        text = " ".join(chance.choices(words, k=3))
        lines.append(
            f'<li class="{chance.choice(_PARTS)}"><a href="{link}">{text}</a></li>'
        )
        length += len(lines[-1]) + 1
    return "\n".join(lines).encode()


def _path(chance: random.Random, words: list[str]) -> str:
    path = "/" + "/".join(chance.choices(words, k=chance.randint(1, 4)))
    return path + chance.choice(["/", "/", "", ".html", f"?{words[-1]}="])


def described(files: list[bytes]) -> str:
    """Say how large they are, as received and compressed."""
    sizes = sorted(map(len, files))
    packed = [len(zlib.compress(file)) for file in files]
    return (
        f"mean {mean(sizes):,.0f} bytes, median {median(sizes):,.0f}, 99th percentile "
        f"{sizes[len(sizes) * 99 // 100]:,}; with zlib mean {mean(packed):,.0f}, median "
        f"{median(packed):,.0f}"
    )
