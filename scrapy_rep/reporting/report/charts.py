"""Charts of the report, drawn by pygal. How they look is in `page.css`; what they show is in a
table beside each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pygal
from markupsafe import Markup
from pygal.style import Style

from scrapy_rep.engine.words import clean, date

if TYPE_CHECKING:
    from scrapy_rep.reporting.report.data import ReportData, Spell

_WIDTH = 960
_SPELLS = 20
_NAME = 40
_FONT = 14
# There are ticks of one of these, in seconds, some five of them on an axis.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400),
)
_TICKS = 7
# Seconds: up to here they are counted from the beginning; from here on days are named.
_SHORT, _LONG = 60, 86400


def outcomes(data: ReportData) -> Markup:
    """How many origins there are of each outcome."""
    chart = pygal.HorizontalBar(
        **_config(height=56 + 34 * len(data.outcomes)),
        show_x_labels=False,
    )
    # pygal draws from below.
    words = list(data.outcomes)[::-1]
    chart.x_labels = [f"{word}: {data.outcomes[word]:,}" for word in words]
    chart.add("origins", [data.outcomes[word] for word in words])
    label = ", ".join(f"{count:,} {word}" for word, count in data.outcomes.items())
    return _drawn(chart, f"Bar chart. Origins: {label}.")


def spells(data: ReportData) -> Markup:
    """When the origins that were unreachable longest were so, each on a line of its own."""
    shown = sorted(data.spells[:_SPELLS], key=lambda spell: (spell.began, spell.origin))[::-1]
    lines = {name: number for number, name in enumerate(dict.fromkeys(s.origin for s in shown))}
    chart = pygal.XY(
        **_config(height=70 + 24 * len(lines)),
        **_times(data),
        show_dots=False,
        range=(-0.5, len(lines) - 0.5),
        show_y_guides=True,
    )
    chart.y_labels = [{"label": _short(name), "value": at} for name, at in lines.items()]
    for spell in shown:
        chart.add(None, _bar(spell, lines[spell.origin], data))
    return _drawn(
        chart,
        f"Time-line of the {len(shown)} longest times in which a robots.txt was unreachable. "
        "They are in the table below.",
    )


def held(data: ReportData) -> Markup:
    """How many requests were held in the course of the crawl."""
    steps: list[tuple[float, int]] = [(data.figures.began, 0)]
    for at, value in data.timeline:
        steps += [(at, steps[-1][1]), (at, value)]
    steps.append((data.figures.ended, steps[-1][1]))
    chart = pygal.XY(
        **_config(height=220),
        **_times(data),
        show_dots=False,
        fill=True,
        include_x_axis=True,
        show_y_guides=True,
        value_formatter=lambda value: f"{value:,.0f}",
        max_scale=5,
    )
    top = max(value for _, value in steps)
    chart.y_labels = sorted({0, top // 2, top})
    chart.add("held", [(at - data.figures.began, value) for at, value in steps])
    return _drawn(
        chart,
        f"Requests held in the course of time: {data.held_max:,} at most, "
        f"{steps[-1][1]:,} at the end.",
    )


def _config(height: int) -> dict[str, Any]:
    # No styles and no scripts of pygal's: it takes the latter from a server on the Web.
    return {
        "width": _WIDTH,
        "height": height,
        "js": [],
        "css": [],
        "disable_xml_declaration": True,
        "show_legend": False,
        # What page.css makes of them: pygal has to know how much room labels take.
        "style": Style(label_font_size=_FONT, major_label_font_size=_FONT),
        "truncate_label": -1,
        "margin": 12,
        "margin_right": 28,
    }


def _times(data: ReportData) -> dict[str, Any]:
    """An axis of time, in seconds since the beginning."""

    def words(value: float) -> str:
        if seconds < _SHORT:
            return f"{value:g} s"
        return date(began + value, "%H:%M:%S" if seconds < _LONG else "%m-%d %H:%M")

    began, seconds = data.figures.began, max(data.figures.ended - data.figures.began, 0.001)
    return {
        "xrange": (0, seconds),
        "x_labels": _ticks(began if seconds >= _SHORT else 0.0, seconds),
        "x_value_formatter": words,
    }


def _ticks(began: float, seconds: float) -> list[float]:
    """Seconds after *began* at which the clock is round."""
    step: float = next((step for step in _STEPS if seconds / step <= _TICKS), _STEPS[-1])
    while seconds / step > _TICKS:
        step *= 2
    first = -began % step
    count = int((seconds - first) / step) + 1 if seconds >= first else 0
    return [round(first + step * number, 2) for number in range(count)]


def _bar(spell: Spell, line: int, data: ReportData) -> list[tuple[float, int]]:
    seconds = data.figures.ended - data.figures.began
    left = max(0.0, spell.began - data.figures.began)
    right = min(seconds, spell.ended - data.figures.began)
    # What is shorter than a pixel is to be seen too.
    return [(left, line), (max(right, min(left + seconds / 300, seconds)), line)]


def _short(name: str) -> str:
    name = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
    return clean(name)


def _drawn(chart: Any, label: str) -> Markup:
    """Return the picture as a part of the page, described by *label*."""

    def strip(root: Any) -> Any:
        for element in list(root.iter()):
            for child in list(element):
                # Styles and settings of pygal's, comments, descriptions for its scripts, tooltips.
                name = child.tag.split("}")[-1] if isinstance(child.tag, str) else "comment"
                if (
                    name in ("defs", "desc", "title", "comment")
                    or child.get("class") == "plot tooltip-overlay"
                ):
                    element.remove(child)
            element.attrib.pop("style", None)
        root.attrib.pop("id", None)
        root.set("role", "img")
        root.set("aria-label", label)
        return root

    chart.add_xml_filter(strip)
    return Markup(chart.render(is_unicode=True))  # noqa: S704 (made of elements: lxml escapes)
