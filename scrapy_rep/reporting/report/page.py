"""Data becomes a page."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scrapy_rep.engine.words import clean, counted, date
from scrapy_rep.reporting.report import charts
from scrapy_rep.reporting.summary import OUTCOMES

if TYPE_CHECKING:
    from scrapy_rep.reporting.report.data import ReportData

_FOLDER = Path(__file__).parent


def render(data: ReportData) -> bytes:
    """Return the page: HTML with everything in it, in UTF-8."""
    environment = Environment(
        loader=PackageLoader("scrapy_rep.reporting.report", ""),
        autoescape=True,  # all of it was written by others
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": lambda value: f"{value:,}",
        "moment": _moment,
        "duration": duration,
    }
    environment.globals |= {"counted": counted}
    style, script = _source("page.css"), _source("page.js")
    text: str = environment.get_template("page.html").render(
        data=data,
        charts=charts,
        words=OUTCOMES,
        style=Markup(style),  # noqa: S704 (a file of ours)
        script=Markup(script),  # noqa: S704 (a file of ours)
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return text.encode()


def _cleaned(value: object) -> object:
    return clean(value) if type(value) is str else value  # not markup, which is ours


def duration(seconds: float) -> str:
    """Return *seconds* for people: ``4.2 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, small, names in ((86400, 3600, "d h"), (3600, 60, "h min"), (60, 1, "min s")):
        if whole >= big:
            first, second = names.split()
            return f"{whole // big} {first} {whole % big // small} {second}"
    raise AssertionError  # pragma: no cover


def _moment(seconds: float) -> str:
    return date(seconds, "%Y-%m-%d %H:%M:%S")


def _source(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    """By which the page's Content-Security-Policy knows its own style and script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
