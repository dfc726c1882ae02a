"""Pages whose links take long to encode."""

from __future__ import annotations

from functools import cache

LABELS = ".".join(["é"] * 80)
"""Each takes 30 microseconds."""
LONG = "é" * 250


def links(before: str, href: str, count: int = 4_000) -> str:
    kinds = ("<a rel=nofollow href='{}'>", "<a href='{}'>")
    return before + "".join(
        kinds[at % 2].format(href.format(at)) for at in range(count)
    )


@cache
def hostile_pages() -> dict[str, str]:
    """Made when they are needed: it takes a moment."""
    return {
        "a base of 250": links(f"<base href='http://{LONG}/'>", "p{}", 20_000),
        "a base of 80 labels": links(f"<base href='//{LABELS}/'>", "p{}"),
        "hosts of 80 labels": links("", f"http://{LABELS}.{{}}/"),
        "hosts of 30 labels": links("", f"http://{LABELS[:60]}{{}}/"),
        "hosts": links("", "http://bücher{}.example/"),
        "a base of 1 MB": links("<base href='/" + "a/" * 500_000 + "'>", "p{}", 10_000),
        "a base of 8 KB": links("<base href='/" + "a/" * 4_000 + "'>", "./p{}", 10_000),
        "long paths": links("", "/" + "é" * 300 + "{}"),
        "paths of dots": links("", "/" + "a/../" * 100 + "{}"),
        "queries": links("", "?é{}"),
        "plain": links("", "/p/{}", 60_000),
        "absolute": links("", "http://a.example/p/{}", 40_000),
    }
