"""Vega-Lite specifications, as plain dicts; their data come from tables.

Colours are variables of the page's style, so a chart follows dark mode and print
without being drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]

COLOURS = [f"var(--c{n})" for n in range(1, 7)]
_HEIGHT = 220  # pixels
_BAR = 22  # pixels a bar
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [10, 2]]
_CONFIG: Spec = {
    "background": None,
    "aria": False,  # the figure around it has a name, and a table
    "font": "system-ui, 'Segoe UI', Roboto, sans-serif",
    "view": {"stroke": None},
    "range": {"category": COLOURS},
    "axis": {
        "labelColor": "var(--dim)",
        "titleColor": "var(--dim)",
        "titleFontWeight": "normal",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--line)",
        "gridOpacity": 0.5,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 120,
    },
    "legend": {
        "labelColor": "var(--text)",
        "titleColor": "var(--dim)",
        "labelFontSize": 12,
        "orient": "bottom",
        "title": None,
        "columns": 2,
        "labelLimit": 140,
        "symbolSize": 200,
    },
    "mark": {"color": COLOURS[0]},
    "text": {"color": "var(--text)"},
}


def with_data(spec: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Spec:
    """A complete specification.

    Args:
      spec: From a function of this module.
      rows: The values by field.
    """
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": _CONFIG,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "rows", "values": list(rows)},
        **spec,
    }


def lines(x: str, y: str, series: str, *, titles: tuple[str, str]) -> Spec:
    """Lines with points, by series; a series differs by its colour and its dashes.

    Args:
      x: Field at the bottom, a whole number.
      y: Field at the left.
      series: Field with the name of the line.
      titles: Titles of both axes.
    """
    return {
        "height": _HEIGHT,
        "mark": {"type": "line", "point": {"size": 40}, "tooltip": {"content": "data"}},
        "encoding": {
            "x": _quantity(x, titles[0], axis={"tickMinStep": 1, "format": "d"}),
            "y": _quantity(y, titles[1]),
            "color": {"field": series, "type": "nominal", "sort": None},
            "strokeDash": {
                "field": series,
                "type": "nominal",
                "sort": None,
                "scale": {"range": _DASHES},
            },
        },
    }


def bars(category: str, value: str, rows: int, *, title: str) -> Spec:
    """Horizontal bars in the order of the rows.

    Args:
      category: Field with the name of the bar.
      value: Field with its length.
      rows: Number of bars.
      title: Title of the axis of lengths.
    """
    return {
        "height": max(2, rows) * _BAR,
        "mark": {"type": "bar", "tooltip": {"content": "data"}},
        "encoding": {
            "y": _category(category),
            "x": _quantity(value, title, zero=True),
        },
    }


def grouped_bars(category: str, value: str, rows: int, *, title: str) -> Spec:
    """Horizontal bars by category, one for each value of field `of`.

    Args:
      category: Field with the name of the group.
      value: Field with the length of a bar.
      rows: Number of groups.
      title: Title of the axis of lengths.
    """
    of: Spec = {"field": "of", "type": "nominal", "sort": None}
    return {
        "height": max(2, rows) * 1.5 * _BAR,
        "mark": {"type": "bar", "tooltip": {"content": "data"}},
        "encoding": {
            "y": _category(category),
            "yOffset": of,
            "x": _quantity(value, title, zero=True),
            "color": of,
        },
    }


def histograms(x: tuple[str, str], y: str, *, titles: Sequence[str]) -> Spec:
    """Outlined bars between two borders, one over the other, for each `of`.

    Args:
      x: Fields of the left and the right border.
      y: Field of the height.
      titles: Titles of both axes.
    """
    mark: Spec = {"type": "bar", "filled": False, "tooltip": {"content": "data"}}
    height = {**_quantity(y, titles[1], zero=True), "stack": None}
    return {
        "height": _HEIGHT,
        "mark": mark | {"strokeWidth": 1.5},
        "encoding": {
            **{"x": _quantity(x[0], titles[0]), "x2": {"field": x[1]}},
            **{"y": height, "y2": {"datum": 0}},
            **_series(),
        },
    }


def dots(
    category: str, value: str, rows: int, *, title: str, line: float | None
) -> Spec:
    """A dot for each row, and a vertical line at a value of comparison.

    Args:
      category: Field with the name of the dot.
      value: Field with its place.
      rows: Number of dots.
      title: Title of the axis.
      line: The value of comparison; None for no line.
    """
    layers: list[Spec] = [
        {
            "mark": {
                "type": "point",
                "filled": True,
                "size": 90,
                "opacity": 1,
                "tooltip": {"content": "data"},
            },
            "encoding": {
                "y": _category(category),
                "x": _quantity(value, title),
            },
        }
    ]
    if line is not None:
        rule = {"type": "rule", "strokeDash": [4, 3], "color": COLOURS[1]}
        layers.append({"mark": rule, "encoding": {"x": {"datum": line}}})
    return {"height": max(2, rows) * _BAR, "layer": layers}


def unit_square(
    order: str,
    *,
    titles: Sequence[str],
    diagonal: bool = False,
    points: bool = False,
) -> Spec:
    """Lines from 0 to 1 on both axes, through fields `x` and `y`, by field `of`.

    Args:
      order: Field by which the points of a line follow each other, falling.
      titles: Titles of both axes.
      diagonal: Whether the line from (0, 0) to (1, 1) is drawn.
      points: Whether the lines have points.
    """
    mark: Spec = {"type": "line", "tooltip": {"content": "data"}, "clip": True}
    line: Spec = {
        "mark": mark | ({"point": {"size": 40}} if points else {}),
        "encoding": {
            **{"x": _share("x", titles[0]), "y": _share("y", titles[1])},
            "order": {"field": order, "type": "quantitative", "sort": "descending"},
            **_series(),
        },
    }
    if not diagonal:
        return {"height": _HEIGHT, **line}
    return {"height": _HEIGHT, "layer": [_diagonal(0, 1), line]}


def beside_diagonal(
    order: str, *, titles: Sequence[str], ends: tuple[float, float]
) -> Spec:
    """Lines with points through fields `x` and `y`, by field `of`, and the diagonal.

    Args:
      order: Field by which the points of a line follow each other.
      titles: Titles of both axes.
      ends: Where the diagonal begins and ends on both axes.
    """
    line: Spec = {
        "mark": {"type": "line", "tooltip": {"content": "data"}, "point": {"size": 40}},
        "encoding": {
            **{"x": _quantity("x", titles[0]), "y": _quantity("y", titles[1])},
            "order": {"field": order, "type": "quantitative"},
            **_series(),
        },
    }
    return {"height": _HEIGHT, "layer": [_diagonal(*ends), line]}


def band(x: str, y: str, ends: tuple[str, str], *, titles: Sequence[str]) -> Spec:
    """A line in a band for each value of field `of`, and a horizontal line at 0.

    Args:
      x: Field at the bottom.
      y: Field of the line.
      ends: Fields of the lower and the upper border of the band.
      titles: Titles of both axes.
    """
    series = _series()
    colour = {**series["color"], "legend": {"symbolOpacity": 1}}
    dashes = {**series["strokeDash"], "legend": None}  # an area has none
    places: Spec = {"x": _quantity(x, titles[0]), "color": colour}
    low, high = ends
    area: Spec = {
        "mark": {"type": "area", "opacity": 0.15},
        "encoding": {**places, "y": _quantity(low, titles[1]), "y2": {"field": high}},
    }
    line: Spec = {
        "mark": {"type": "line", "tooltip": {"content": "data"}, "point": {"size": 40}},
        "encoding": {
            **{**places, "strokeDash": dashes},
            "y": _quantity(y, titles[1]),
        },
    }
    rule = {"type": "rule", "strokeDash": [4, 3], "color": "var(--line)"}
    zero: Spec = {"mark": rule, "encoding": {"y": {"datum": 0}}}
    return {"height": _HEIGHT, "layer": [zero, area, line]}


def density(
    x: tuple[str, str],
    y: tuple[str, str],
    value: str,
    *,
    titles: Sequence[str],
    ends: tuple[float, float],
) -> Spec:
    """Squares between two borders on each axis, the stronger the larger their value.

    Args:
      x: Fields of the left and the right border.
      y: Fields of the lower and the upper border.
      value: Field with the value.
      titles: Titles of both axes.
      ends: Where the diagonal begins and ends on both axes; in the wrong order for
        none.
    """
    opacity: Spec = {
        **{"field": value, "type": "quantitative", "legend": None},
        "scale": {"type": "sqrt", "domainMin": 0, "range": [0.08, 1]},
    }
    squares: Spec = {
        "mark": {"type": "rect", "tooltip": {"content": "data"}},
        "encoding": {
            **{"x": _quantity(x[0], titles[0]), "x2": {"field": x[1]}},
            **{"y": _quantity(y[0], titles[1]), "y2": {"field": y[1]}},
            "opacity": opacity,
        },
    }
    lines = [_diagonal(*ends)] if ends[0] < ends[1] else []
    return {"height": _HEIGHT, "layer": [squares, *lines]}


def squares(x: str, y: str, value: str, share: str, rows: int) -> Spec:
    """A square for each pair, the darker the larger its share, with its value.

    Args:
      x: Field with the name of the column.
      y: Field with the name of the row.
      value: Field with the number in the square.
      share: Field with its share, from 0 to 1.
      rows: Number of rows.
    """
    places = {"x": {**_category(x), "title": x}, "y": {**_category(y), "title": y}}
    opacity: Spec = {
        **{"field": share, "type": "quantitative", "legend": None},
        "scale": {"domain": [0, 1], "range": [0.05, 0.6]},
    }
    number = {"field": value, "type": "quantitative", "format": ",.4~g"}
    return {
        "height": rows * 2 * _BAR,
        "layer": [
            {
                "mark": {"type": "rect", "tooltip": {"content": "data"}},
                "encoding": {**places, "opacity": opacity},
            },
            {"mark": "text", "encoding": {**places, "text": number}},
        ],
    }


def _series() -> Spec:
    """A colour and dashes for each value of field `of`."""
    series: Spec = {"field": "of", "type": "nominal", "sort": None}
    return {"color": series, "strokeDash": {**series, "scale": {"range": _DASHES}}}


def _diagonal(low: float, high: float) -> Spec:
    """A dashed line of equal values."""
    ends = (("", low), ("2", high))
    places = {f"{axis}{end}": {"datum": x} for axis in "xy" for end, x in ends}
    rule = {"type": "rule", "strokeDash": [4, 3], "color": "var(--dim)"}
    return {"mark": rule, "encoding": places}


def _share(field: str, title: str) -> Spec:
    """An axis from 0 to 1."""
    spec = _quantity(field, title)
    return {**spec, "scale": {"domain": [0, 1]}}


def _quantity(
    field: str,
    title: str,
    *,
    zero: bool = False,
    axis: Mapping[str, Any] | None = None,
) -> Spec:
    scale: Spec = {"zero": zero, "nice": True}
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale,
        "axis": {"tickCount": 5, **(axis or {})},
    }


def _category(field: str) -> Spec:
    return {"field": field, "type": "nominal", "sort": None, "title": None}
