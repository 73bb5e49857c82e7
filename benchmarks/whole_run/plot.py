"""Draws curves as SVG, both axes logarithmic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

Curve = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 400, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 40, 40
_COLORS = ("#1a6fb5", "#7db8e0", "#c0392b", "#2e8b57", "#888888", "#d9a400")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One diagram: its title, and its curves by name, of points (x, y)."""

    title: str
    curves: Mapping[str, Curve]


def draw(panels: Sequence[Panel]) -> str:
    """The panels side by side, with one legend below them."""
    names = list(panels[0].curves)
    width, height = _WIDTH * len(panels), _HEIGHT + 20 * len(names) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        lines.append(f'<g transform="translate({number * _WIDTH} 0)">')
        lines += _panel(panel)
        lines.append("</g>")
    for number, (name, color) in enumerate(zip(names, _COLORS, strict=False)):
        y = _HEIGHT + 20 * number + 10
        lines.append(
            f'<rect x="{_LEFT}" y="{y - 9}" width="20" height="8" fill="{color}"/>'
        )
        lines.append(f'<text x="{_LEFT + 28}" y="{y}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for curve in panel.curves.values() for point in curve]
    x = _scale([place for place, _ in points], _LEFT, _WIDTH - _RIGHT)
    y = _scale([value for _, value in points], _HEIGHT - _BOTTOM, _TOP)
    yield f'<text x="{_LEFT}" y="20" font-weight="bold">{panel.title}</text>'
    for place in sorted({place for place, _ in points}):
        yield (
            f'<text x="{x(place):.0f}" y="{_HEIGHT - _BOTTOM + 18}" '
            f'text-anchor="middle">{_short(place)}</text>'
        )
    for value in _ticks([value for _, value in points]):
        yield (
            f'<path d="M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{_short(value)}</text>'
        )
    for color, curve in zip(_COLORS, panel.curves.values(), strict=False):
        dots = [(f"{x(place):.1f}", f"{y(value):.1f}") for place, value in curve]
        path = " ".join(map(",".join, dots))
        yield f'<polyline points="{path}" fill="none" stroke="{color}"/>'
        for left, top in dots:
            yield f'<circle cx="{left}" cy="{top}" r="3" fill="{color}"/>'


def _scale(
    values: Sequence[float], start: float, end: float
) -> Callable[[float], float]:
    """Maps the range of `values`, a little widened, to that from `start` to `end`."""
    low, high = math.log(min(values)) - 0.1, math.log(max(values)) + 0.1
    return lambda value: start + (end - start) * (math.log(value) - low) / (high - low)


def _ticks(values: Sequence[float]) -> Iterator[float]:
    """1, 2 and 5 times the powers of ten in the range of `values`."""
    for power in range(math.floor(math.log10(min(values))), 10):
        for first in (1, 2, 5):
            value = first * 10.0**power
            if min(values) <= value <= max(values):
                yield value


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
