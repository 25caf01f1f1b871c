"""Draws rates over what has been transferred as SVG: legible on light and on dark pages, with nothing to install."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

_COLOURS = {
    "headwater": ("#0b5cad", "#74b7ff"),
    "kafka": ("#b8420e", "#ff9d6b"),
    "rabbitmq": ("#0b7a4b", "#54d6a0"),
    "activemq": ("#7440a8", "#cba6ff"),
}
"""Of a contender, on light and on dark."""

_WIDTH, _HEIGHT = 880, 400  # without the caption
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 246, 52, 56
_LINE = 17
_LETTERS = 130  # of a line of the caption
_LOG_BEYOND = 10
"""With rates further apart than this the axis is logarithmic."""


@dataclass(frozen=True)
class Line:
    """One line of a figure.

    Attributes:
        name: Of the contender, for its colour.
        title: At its right end.
        points: From left to right; values above 0.
        dashed: Told apart from another line of the same contender.
    """

    name: str
    title: str
    points: Sequence[tuple[float, float]]
    dashed: bool


def draw(lines: Sequence[Line], *, title: str, x_label: str, y_label: str, caption: Sequence[str]) -> str:
    """A figure.

    Args:
        lines: At least one, each with a point.
        title: Above it.
        x_label: With the unit.
        y_label: With the unit.
        caption: Sentences below it.
    """
    values = [y for line in lines for _, y in line.points]
    scale = _Scale(min(values), max(values))
    last_x = max(x for line in lines for x, _ in line.points)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def across(x: float) -> float:
        return _LEFT + x / last_x * (right - _LEFT)

    def down(y: float) -> float:
        return bottom - scale.share(y) * (bottom - _TOP)

    wrapped = [row for sentence in caption for row in _rows(sentence)]
    height = _HEIGHT + _LINE * len(wrapped) + 14
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="ink" x="{_LEFT}" y="28" font-size="16" font-weight="bold">{escape(title)}</text>',
    ]
    for value in scale.ticks:
        y = down(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(
            f'<text class="ink" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    for value in _even_ticks(last_x):
        x = across(value)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text class="ink" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>')
    middle = (_TOP + bottom) / 2
    parts.append(
        f'<text class="ink" x="{(_LEFT + right) / 2:.0f}" y="{bottom + 42}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    scaled = f"{y_label}, logarithmic" if scale.logarithmic else y_label
    parts.append(
        f'<text class="ink" transform="translate(20 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(scaled)}</text>"
    )
    ends = _spread([down(line.points[-1][1]) for line in lines], _TOP, bottom)
    for line, label_y in zip(lines, ends, strict=True):
        path = "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in line.points)
        dashes = ' stroke-dasharray="7 4"' if line.dashed else ""
        parts.append(f'<path class="{line.name} line" d="M{path}"{dashes}/>')
        x, y = across(line.points[-1][0]), down(line.points[-1][1])
        parts.append(f'<path class="{line.name} lead" d="M{x:.1f} {y:.1f}L{right + 12} {label_y:.1f}"/>')
        parts.append(
            f'<text class="{line.name}" x="{right + 16}" y="{label_y + 4:.1f}">{escape(line.title)}</text>'
        )
    for number, row in enumerate(wrapped):
        parts.append(
            f'<text class="quiet" x="12" y="{_HEIGHT + 8 + _LINE * number}" font-size="12">{escape(row)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """Where a value is on the way from the lowest to the highest tick."""

    def __init__(self, least: float, most: float) -> None:
        self.logarithmic = most > _LOG_BEYOND * least
        if self.logarithmic:
            low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
            steps = (1, 2, 5) if high - low <= 3 else (1,)
            every = [step * 10.0**power for power in range(low, high + 1) for step in steps]
            below = [tick for tick in every if tick <= least]
            above = [tick for tick in every if tick >= most]
            self.ticks = [tick for tick in every if below[-1] <= tick <= above[0]]
        else:
            self.ticks = _even_ticks(most)
            self.ticks.append(self.ticks[-1] + self.ticks[1])

    def share(self, value: float) -> float:
        first, last = self.ticks[0], self.ticks[-1]
        if self.logarithmic:
            return math.log(value / first) / math.log(last / first)
        return (value - first) / (last - first)


def _even_ticks(last: float) -> list[float]:
    """From 0, some five of them, none above the last value."""
    rough = last / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    return [number * step for number in range(int(last / step * (1 + 1e-9)) + 1)]


def _short(value: float) -> str:
    for limit, letter in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:g}"


def _spread(places: Sequence[float], top: float, bottom: float) -> list[float]:
    """Places of labels that do not cover each other, each as near to its line as that allows."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    found = list(places)
    for before, after in pairwise(order):
        found[after] = max(found[after], found[before] + _LINE)
    overhang = max(0.0, found[order[-1]] - bottom)
    found[order[-1]] -= overhang
    for after, before in pairwise(order[::-1]):
        found[before] = max(top, min(found[before], found[after] - _LINE))
    return found


def _rows(sentence: str) -> list[str]:
    rows = [""]
    for word in sentence.split():
        if rows[-1] and len(rows[-1]) + 1 + len(word) > _LETTERS:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return rows


def _style() -> str:
    plain = (
        ".line{fill:none;stroke-width:2.2}.lead{fill:none;stroke-width:1;opacity:.55}.grid,.axis{fill:none}"
    )
    return plain + _shades(0) + "@media (prefers-color-scheme:dark){" + _shades(1) + "}"


def _shades(index: int) -> str:
    page, ink, quiet, grid = (
        ("#ffffff", "#1f2328", "#57606a", "#d8dee4"),
        ("#0d1117", "#e6edf3", "#9da7b3", "#30363d"),
    )[index]
    shades = f".page{{fill:{page}}}.ink{{fill:{ink}}}.quiet{{fill:{quiet}}}"
    shades += f".grid{{stroke:{grid}}}.axis{{stroke:{quiet}}}"
    for name, colours in _COLOURS.items():
        shades += f"path.{name}{{stroke:{colours[index]}}}text.{name}{{fill:{colours[index]}}}"
    return shades
