"""Values that a notebook shows as the sections of a report.

A front end shows one form of an output. So the tables are one output, HTML, and each
chart is another one, a Vega-Lite specification that JupyterLab and VS Code draw.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from strategos.pipeline.report.document import Block, Chart, Facts, Section

VEGA_LITE = "application/vnd.vegalite.v5+json"


class Shown:
    """A value shown with tables and charts in a notebook, and by its text elsewhere.

    Subclasses implement `_sections`.
    """

    def _sections(self) -> Sequence[Section]:
        """The sections to show."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The tables."""
        return html(self._sections())

    def _ipython_display_(self) -> None:
        """Shows tables, then charts, in the kernel of a notebook.

        Raises:
          NotImplementedError: There is a terminal; IPython then prints the text.
        """
        from IPython import get_ipython
        from IPython.display import display

        if not hasattr(get_ipython(), "kernel"):
            raise NotImplementedError
        sections = self._sections()
        display({"text/plain": repr(self), "text/html": html(sections)}, raw=True)
        for title, spec in specifications(sections):
            display({"text/plain": title, VEGA_LITE: spec}, raw=True)


def html(sections: Sequence[Section]) -> str:
    """The tables of sections, also those of charts; text from data is escaped.

    Args:
      sections: The sections.
    """
    from strategos.pipeline.report import page

    shown = [
        dataclasses.replace(each, blocks=[_undrawn(block) for block in each.blocks])
        for each in sections
    ]
    return page.environment().get_template("notebook.html").render(sections=shown)


def specifications(sections: Sequence[Section]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the title and the specification of each chart, with its data.

    Args:
      sections: The sections.
    """
    from strategos.pipeline.report import charts, page

    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Chart):
            spec = charts.with_data(block.spec, page.records(block.table))
            spec["config"] = {**spec["config"], "background": "var(--page)"}
            del spec["config"]["aria"]  # no figure around the chart has a name
            yield block.title, {**_in_colours(spec), "title": block.title}


def _undrawn(block: Block) -> Block:
    """The folded table of a chart; of facts, those that are known."""
    if isinstance(block, Chart):
        return dataclasses.replace(block.table, folded=True)
    if isinstance(block, Facts):
        return Facts([fact for fact in block.rows if fact[1] is not None])
    return block


def _in_colours(value: Any) -> Any:
    """A specification with colours in place of the variables of the report's style.

    Texts of the data stay: only a text that is a variable as a whole is a colour.
    """
    if isinstance(value, dict):
        kept = ("data",)
        return {k: v if k in kept else _in_colours(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_in_colours(each) for each in value]
    return _colours().get(value, value) if isinstance(value, str) else value


@functools.cache
def _colours() -> dict[str, str]:
    """The colours of the report's style on a light page, by `var(--NAME)`."""
    from strategos.pipeline.report import page

    light, _, _ = page.asset("report.css").partition("@media")
    return {
        f"var({name})": colour for name, colour in re.findall(r"(--\w+): (#\w+)", light)
    }
