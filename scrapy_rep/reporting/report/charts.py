"""The charts of the report, drawn by pygal and styled by `page.css`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pygal
from markupsafe import Markup
from pygal.style import Style

from scrapy_rep.engine.words import clean, date

if TYPE_CHECKING:
    from scrapy_rep.reporting.report.data import ReportData, Spell

_SPELLS = 20
_NAME = 40
_FONT = 14
# Seconds between two ticks of an axis.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400),
)
_TICKS = 7
# Shorter crawls show seconds since the beginning, longer ones dates.
_SHORT, _LONG = 60, 86400


def outcomes(data: ReportData) -> Markup:
    """The number of origins by outcome."""
    chart = pygal.HorizontalBar(**_config(56 + 34 * len(data.outcomes)), show_x_labels=False)
    # pygal draws from the bottom.
    bars = list(data.outcomes.items())[::-1]
    chart.x_labels = [f"{words}: {count:,}" for words, count in bars]
    chart.add("origins", [count for _, count in bars])
    label = ", ".join(f"{count:,} {word}" for word, count in data.outcomes.items())
    return _drawn(chart, f"Bar chart. Origins: {label}.")


def spells(data: ReportData) -> Markup:
    """The longest periods in which origins were unreachable, one line for each origin."""
    shown = sorted(data.spells[:_SPELLS], key=lambda spell: (spell.began, spell.origin))[::-1]
    lines = {name: number for number, name in enumerate(dict.fromkeys(s.origin for s in shown))}
    options = _config(70 + 24 * len(lines)) | _times(data)
    chart = pygal.XY(**options, range=(-0.5, len(lines) - 0.5))
    chart.y_labels = [{"label": _short(name), "value": at} for name, at in lines.items()]
    for spell in shown:
        chart.add(None, _bar(spell, lines[spell.origin], data))
    label = f"Timeline of the {len(shown)} longest periods in which a robots.txt was unreachable."
    return _drawn(chart, f"{label} They are in the table below.")


def held(data: ReportData) -> Markup:
    """The number of requests held over time."""
    steps: list[tuple[float, int]] = [(data.figures.began, 0)]
    for at, value in data.timeline:
        steps += [(at, steps[-1][1]), (at, value)]
    steps.append((data.figures.ended, steps[-1][1]))
    chart = pygal.XY(
        **_config(220),
        **_times(data),
        fill=True,
        include_x_axis=True,
        value_formatter=lambda value: f"{value:,.0f}",
        max_scale=5,
    )
    top = max(value for _, value in steps)
    chart.y_labels = sorted({0, top // 2, top})
    chart.add("held", [(at - data.figures.began, value) for at, value in steps])
    most, last = data.counts["held_max"], steps[-1][1]
    return _drawn(chart, f"Requests held over time: {most:,} at most, {last:,} at the end.")


def _config(height: int) -> dict[str, Any]:
    # Without pygal's styles, and its scripts, which it would load from the Web.
    return {
        "width": 960,
        "height": height,
        "js": [],
        "css": [],
        "disable_xml_declaration": True,
        "show_legend": False,
        # As in page.css, so that pygal knows the size of labels.
        "style": Style(label_font_size=_FONT, major_label_font_size=_FONT),
        "truncate_label": -1,
        "margin": 12,
        "margin_right": 28,
    }


def _times(data: ReportData) -> dict[str, Any]:
    """Return the options of a chart over time, in seconds since the beginning."""

    def words(value: float) -> str:
        if seconds < _SHORT:
            return f"{value:g} s"
        return date(began + value, "%H:%M:%S" if seconds < _LONG else "%m-%d %H:%M")

    began, seconds = data.figures.began, max(data.figures.ended - data.figures.began, 0.001)
    return {
        "show_dots": False,
        "show_y_guides": True,
        "xrange": (0, seconds),
        "x_labels": _ticks(began if seconds >= _SHORT else 0.0, seconds),
        "x_value_formatter": words,
    }


def _ticks(began: float, seconds: float) -> list[float]:
    """Return seconds after *began* at which the time of day is a round number."""
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
    # Wide enough to be visible.
    return [(left, line), (max(right, min(left + seconds / 300, seconds)), line)]


def _short(name: str) -> str:
    return clean(name if len(name) <= _NAME else name[: _NAME - 1] + "…")


def _drawn(chart: Any, label: str) -> Markup:
    """Return the picture as HTML, with *label* for screen readers."""

    def strip(root: Any) -> Any:
        for element in list(root.iter()):
            for child in list(element):
                # pygal's styles, settings and tooltips, and descriptions for its scripts.
                name = child.tag.split("}")[-1] if isinstance(child.tag, str) else "comment"
                overlay = child.get("class") == "plot tooltip-overlay"
                if overlay or name in ("defs", "desc", "title", "comment"):
                    element.remove(child)
            element.attrib.pop("style", None)
        root.attrib.pop("id", None)
        root.set("role", "img")
        root.set("aria-label", label)
        return root

    chart.add_xml_filter(strip)
    return Markup(chart.render(is_unicode=True))  # noqa: S704 (made of elements: lxml escapes)
