"""The section on the data: splits, statistics, missing values, anomalies, gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import anomalies_pb2, statistics_pb2

from strategos.components import node_ids, wording
from strategos.components.data_files import span_checks
from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Facts,
    Paragraph,
    Raw,
    Section,
    State,
    Table,
    header,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.report.sections import by_slice, features
from strategos.pipeline.view import lineage as lineage_view

_Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatistics
_SPLITS = ("train", "validation", "eval")
_FEATURES = 300  # rows of a table
_BARS = 20
_STATISTICS, _ANOMALIES = "FeatureStats.pb", "SchemaDiff.pb"


def data(record: Record) -> Section | None:
    """The data of the run; None if no node has read any."""
    facts = record.facts(node_ids.EXAMPLE_GEN)
    blocks: list[Block] = []
    if "rows" in facts:
        blocks.append(Facts(list(_rows(record))))
    blocks += _gates(record.run.gates)
    blocks += _anomalies(record)
    folder = record.folder(node_ids.STATISTICS_GEN, "ExampleStatistics")
    by_split = {split: _of_split(folder, split) for split in _SPLITS}
    read = {split: each for split, each in by_split.items() if each is not None}
    blocks += _distributions(record, read)
    for split, whole in read.items():
        blocks += _statistics(whole, split)
    blocks += _further(record)
    blocks += _gaps(facts.get("empty_cells") or {})
    return Section("data", "Data", blocks) if blocks else None


def _rows(record: Record) -> Iterator[tuple[str, Cell]]:
    for step in record.steps:
        if step.node == node_ids.EXAMPLE_GEN:
            yield from lineage_view.described(step)
    if record.run.types:
        yield "types and gaps", Raw(record.run.types, "message")


def _gates(checks: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """The checks of new spans against the spans before them."""
    if not checks:
        return
    columns = header("gate | span# | feature | result | check")
    order = sorted(checks, key=lambda check: bool(check["ok"]))
    rows: list[Sequence[Cell]] = [
        (
            *(check["gate"], check["span"], check["feature"] or ""),
            State("holds", "good") if check["ok"] else State("fails", "bad"),
            Raw(span_checks.describe(check), "check"),
        )
        for check in order[:_FEATURES]
    ]
    left_out = max(0, len(order) - _FEATURES)
    title = "Gates: new spans compared with the spans before them"
    yield Table(title, columns, rows, left_out)


def _anomalies(record: Record) -> Iterator[Block]:
    known = _read_anomalies(record)
    rows = [(split, *row) for split, each in known.items() for row in _found(each)]
    if known and not rows:
        splits = wording.listed(list(known))
        yield Paragraph(f"No anomalies: {splits} match the schema.", "good")
    if not rows:
        return
    columns = header("split | feature | kind: anomaly | text: description")
    yield Table("Anomalies against the schema", columns, rows)


def _read_anomalies(record: Record) -> dict[str, anomalies_pb2.Anomalies]:
    """The anomalies of each split that has been validated."""
    folder = record.folder(node_ids.EXAMPLE_VALIDATOR, "ExampleAnomalies")
    if folder is None:
        return {}
    paths = ((split, folder / f"Split-{split}" / _ANOMALIES) for split in _SPLITS)
    read = {x: _message(path, anomalies_pb2.Anomalies()) for x, path in paths}
    return {split: each for split, each in read.items() if each is not None}


def _found(content: anomalies_pb2.Anomalies) -> Iterator[tuple[Cell, ...]]:
    if content.data_missing:
        yield "", "no data", ""
    infos = dict(sorted(content.anomaly_info.items()))
    if content.HasField("dataset_anomaly_info"):
        infos = {"the data as a whole": content.dataset_anomaly_info, **infos}
    for name, info in infos.items():
        for reason in info.reason or [info]:
            text = Raw(reason.description.strip(), "anomaly")
            feature = ".".join(info.path.step) or name
            yield feature, reason.short_description, text


def _distributions(
    record: Record, splits: Mapping[str, _Statistics]
) -> Iterator[Block]:
    earlier = record.before
    before = _of_split(earlier.folder, "train") if earlier else None
    named = [(features.TRAIN, splits.get("train")), (features.EVAL, splits.get("eval"))]
    known = {name: x for name, x in [*named, (features.BEFORE, before)] if x}
    if features.TRAIN not in known:
        return
    sets = {
        name: {_name(feature): feature for feature in each.features}
        for name, each in known.items()
    }
    findings = (_found(each) for each in _read_anomalies(record).values())
    anomalous = {str(feature) for rows in findings for feature, *_ in rows}
    rows = known[features.TRAIN].num_examples
    run_id = earlier.run_id if earlier and before else ""
    yield from features.blocks(sets, rows, anomalous, run_id)


def _of_split(folder: Path | None, split: str) -> _Statistics | None:
    """The statistics of all rows of a split; None if the folder has none."""
    return next(iter(_datasets(folder, split)), None)


def _datasets(folder: Path | None, split: str) -> Sequence[_Statistics]:
    """The statistics of all rows of a split, then of its slices."""
    if folder is None:
        return ()
    path = folder / f"Split-{split}" / _STATISTICS
    content = _message(path, statistics_pb2.DatasetFeatureStatisticsList())
    return content.datasets if content else ()


def _further(record: Record) -> Iterator[Block]:
    """The statistics that the section `statistics` of the settings adds."""
    for step in record.steps:
        if step.node in (
            node_ids.DETAILED_STATISTICS,
            node_ids.TRANSFORMED_STATISTICS,
        ):
            facts = list(lineage_view.described(step))
            yield from [Facts([(step.node, ""), *facts])] if facts else []
    folder = record.folder(node_ids.DETAILED_STATISTICS, "ExampleStatistics")
    for split in _SPLITS:
        yield from by_slice.blocks(_datasets(folder, split), split)
    folder = record.folder(node_ids.TRANSFORMED_STATISTICS, "ExampleStatistics")
    for split in _SPLITS:
        if whole := _of_split(folder, split):
            yield _table(whole, f"{split} after Transform")


def _statistics(whole: _Statistics, split: str) -> Iterator[Block]:
    table = _table(whole, split)
    yield table
    if split == "train":
        yield from _missing(table.rows)


def _table(whole: _Statistics, split: str) -> Table:
    listed = sorted(whole.features, key=_name)
    rows = [_feature(each, whole.num_examples) for each in listed[:_FEATURES]]
    columns = header(
        "feature | type | missing# | share#: missing, % | distinct# | mean# | "
        "deviation# | low#: least | median# | high#: largest | "
        "frequent: most frequent"
    )
    left_out = max(0, len(listed) - _FEATURES)
    title = f"Statistics of split {split}"
    return Table(title, columns, rows, left_out, folded=True)


def _missing(rows: Sequence[Sequence[Cell]]) -> Iterator[Block]:
    """Bars of the features with the largest shares of missing values."""
    gaps = [(row[0], row[3]) for row in rows if isinstance(row[3], float) and row[3]]
    gaps.sort(key=lambda gap: -float(str(gap[1])))
    if gaps := gaps[:_BARS]:
        columns = header("feature | share#: missing, %")
        spec = charts.bars("feature", "share", len(gaps), title="missing, %")
        table = Table("Missing values of split train", columns, gaps)
        yield Chart("missing", spec, table, "Share of rows without a value.")


def _feature(
    feature: statistics_pb2.FeatureNameStatistics, examples: int
) -> Sequence[Cell]:
    kind = feature.WhichOneof("stats")
    stats: Any = getattr(feature, kind) if kind else None
    common = stats.common_stats if stats is not None else None
    missing = examples - common.num_non_missing if common else examples
    share = 100 * missing / examples if examples else 0.0
    type_name = statistics_pb2.FeatureNameStatistics.Type.Name(feature.type)
    row: list[Cell] = [_name(feature), type_name.lower(), missing, share]
    numbers: list[Cell] = [None] * 5
    if kind == "num_stats":
        numbers = [stats.mean, stats.std_dev]
        numbers += [Raw(x) for x in (stats.min, stats.median, stats.max)]
    distinct, frequent = None, ""
    if kind == "string_stats":
        distinct = stats.unique
        values = (f"{x.value} ({x.frequency:,.0f})" for x in stats.top_values[:3])
        frequent = ", ".join(values)
    return [*row, distinct, *numbers, Raw(frequent, "values") if frequent else ""]


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return ".".join(feature.path.step) or feature.name


def _gaps(cells: Mapping[str, Mapping[str, Any]]) -> Iterator[Block]:
    """Where values are missing: the first row of each column."""
    rows = [
        (name, gap["rows"], gap["of"], gap.get("place") or "")
        for name, gap in cells.items()
    ]
    if rows:
        columns = header(
            "column | rows#: empty cells | of#: of rows | place: the first at"
        )
        yield Table("Empty cells of the data files", columns, rows, folded=True)


def _message(path: Path, empty: Any) -> Any:
    """A message that a file contains; None without a file that has one."""
    try:
        empty.ParseFromString(path.read_bytes())
    except (OSError, DecodeError):
        return None
    return empty
