"""A document with its charts drawn as SVG, for a page without scripts."""

from __future__ import annotations

import dataclasses
import re

from strategos.components.errors import require_extra
from strategos.pipeline.report import charts, page
from strategos.pipeline.report.document import Block, Chart, Document, with_blocks

_WIDTH = 500  # pixels: two charts side by side fill a page
# vl-convert measures labels in a font of its own; the reader's may be wider.
_PADDING = {"left": 24, "right": 12, "top": 5, "bottom": 5}
_VERSION = "5.21"  # of Vega-Lite, the newest 5 that vl-convert includes


def require() -> None:
    """Raises BadInputError where vl-convert is missing, which draws the charts."""
    require_extra("vl_convert", "static", "--static", "vl-convert")


def drawn(document: Document) -> Document:
    """The document with each chart as SVG.

    Args:
      document: The document.
    """
    return with_blocks(document, _static)


def _static(block: Block) -> Block:
    if isinstance(block, Chart):
        return dataclasses.replace(block, svg=_svg(block))
    return block


def _svg(chart: Chart) -> str:
    import vl_convert

    spec = charts.with_data(chart.spec, page.records(chart.table))
    spec |= {"width": _WIDTH, "padding": _PADDING}
    svg = vl_convert.vegalite_to_svg(spec, vl_version=_VERSION)
    # The figure around it has a name and a table.
    svg = svg.replace("<svg ", '<svg aria-hidden="true" ', 1)
    # Each drawing counts its clip paths from 0, and a page has several drawings.
    return re.sub(r'(id="|url\(#)(?=(?:clip|gradient)_?\d)', rf"\g<1>{chart.id}-", svg)
