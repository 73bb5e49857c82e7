"""The files of a new workload."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

from strategos.components.data_files.sources.reading import CsvFormat
from strategos.components.data_files.values.kinds import Kind
from strategos.components.files import commit
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.init import modules
from strategos.pipeline.init.columns import Column
from strategos.pipeline.init.features import Feature
from strategos.pipeline.init.label import Label
from strategos.pipeline.init.sample import Sample

_MOST_SLICED = 10  # distinct values of a feature to slice by
_SLICED = 3  # features
_STEPS = 3000  # of a training, about
_METRICS = {
    "binary": ("auc", "accuracy", "log_loss"),
    "multi_class": ("accuracy", "log_loss"),
    "regression": ("mae", "rmse"),
}
_BETTER = {"binary": "log_loss", "multi_class": "log_loss", "regression": "rmse"}


@dataclasses.dataclass(frozen=True)
class Workload:
    """What `strategos init` has found, and where it writes.

    Attributes:
      name: The pipeline's name.
      folder: The folder of the files.
      origin: The command that writes them.
      sample: The rows.
      columns: All columns.
      label: The label.
      features: The features and the columns that are left out.
    """

    name: str
    folder: Path
    origin: str
    sample: Sample
    columns: Sequence[Column]
    label: Label
    features: Sequence[Feature]

    def write(self) -> None:
        """Writes all files into a new folder, or none.

        Raises:
          OSError: A file cannot be written.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with commit.aside(self.folder) as folder:
            folder.mkdir()
            for name, text in self._files().items():
                (folder / name).write_text(text, encoding="utf-8")

    def set_bound(self, bound: str, why: str) -> None:
        """Writes a bound on the task's main metric into the YAML.

        Args:
          bound: Limits, e.g. `at_least: 0.8`.
          why: The comment beside it.

        Raises:
          OSError: The file cannot be written.
        """
        commit.write(self.folder / MAIN_FILE, self._settings(bound, why))

    @property
    def main_metric(self) -> str:
        """The metric that the bound is for."""
        return _METRICS[self.label.task][0]

    def _files(self) -> dict[str, str]:
        label, features = self.label, self.features
        return {
            MAIN_FILE: self._settings(),
            "preprocessing.py": modules.preprocessing(features, label, self.origin),
            "model.py": modules.model(features, label, self.origin),
            "schema.pbtxt": self._schema(),
            "test_workload.py": _TEST,
        }

    def _settings(self, bound: str = "", why: str = "") -> str:
        task = self.label.task
        limits = [f"    {_BETTER[task]}: {{better_than: trivial}}"]
        if bound:
            limits.append(f"    {self.main_metric}: {{{bound}}}  # {why}")
        fillings = {
            each.column.name: each.filling
            for each in self.features
            if each.filling is not None
        }
        rows, data = self.sample.rows, ["  split: {train: 8, eval: 2, validation: 1}"]
        form = _written_csv(self.sample.csv)
        data[:0] = [f"  csv: {{{form}}}"] if form else []
        if self.label.column.missing:
            data.append("  unlabelled: drop")
        if fillings:
            data.append("  missing:")
            data += [f"    {_text(k)}: {_text(v)}" for k, v in fillings.items()]
        batch = next(size for size, most in _BATCHES if rows < most)
        epochs = max(3, min(100, _STEPS * batch // max(1, rows)))
        return f"""# Predicts {_text(self.label.column.name)} ({self.label.reason}).
# Written by `{self.origin}`; yours to edit.
name: {_text(self.name)}
label: {_text(self.label.column.name)}
data:
  examples: {_text(self._examples())}
{_lines(data)}
schema: {{file: schema.pbtxt}}
transform: {{module: preprocessing}}
trainer:
  module: model
  batch_size: {batch}
  epochs: {epochs}
  callbacks:
    early_stopping: {{monitor: val_loss, patience: {max(3, epochs // 10)}}}
    best_checkpoint: {{monitor: val_loss}}
evaluator:
  task: {task}
  metrics: [{", ".join(_METRICS[task])}]
  slices: [{", ".join(map(_text, self._sliced()))}]
  bounds:
{_lines(limits)}
pusher: {{to: serving, keep: 3}}
"""

    def _examples(self) -> str:
        """The pattern of the data, relative to the folder of the workload."""
        pattern = self.sample.pattern
        if "://" in pattern:
            return pattern
        return os.path.relpath(os.path.abspath(pattern), self.folder.absolute())

    def _sliced(self) -> list[str]:
        few = [
            each.name
            for each in self.columns
            if each.is_text and not each.is_list and 1 < each.distinct <= _MOST_SLICED
        ]
        used = {each.column.name for each in self.features if each.name}
        return [name for name in few if name in used][:_SLICED]

    def _schema(self) -> str:
        parts = [
            "# Types and presence of the columns, as TensorFlow Metadata: a new file "
            "that differs\n# stops the run. "
            f"Written by `{self.origin}`; yours to edit.\n"
        ]
        parts += [self._declared(column) for column in self.columns]
        if self.label.is_text:
            values = "".join(
                f"  value: {_quoted(each)}\n" for each in self._spellings()
            )
            parts.append(f'string_domain {{\n  name: "label"\n{values}}}\n')
        return "".join(parts)

    def _spellings(self) -> list[str]:
        """All texts of the label: another one in new data is an anomaly."""
        if self.label.task == "multi_class":
            return list(self.label.classes)
        return sorted(map(str, self.label.column.counts))

    def _declared(self, column: Column) -> str:
        is_label = column.name == self.label.column.name
        type_ = (column.kind or Kind.BYTES).name
        domain = ' domain: "label"' if is_label and self.label.is_text else ""
        # Rows without a label are left out.
        is_full = is_label or not column.missing
        presence = "presence { }"
        if is_full:
            presence = "presence { min_fraction: 1 min_count: 1 }"
        shape = "value_count { min: 0 max: 1 }"
        if column.is_list:
            length = column.length
            shape = f"shape {{ dim {{ size: {length} }} }}" if length else ""
        elif is_full:
            shape = "shape { dim { size: 1 } }"
        return (
            f"feature {{\n  name: {_quoted(column.name)} type: {type_}{domain}\n"
            f"  {presence} {shape}".rstrip()
            + "\n}\n"
        )


def _written_csv(form: CsvFormat) -> str:
    """The settings of `data.csv` that differ from the defaults."""
    default = dataclasses.asdict(CsvFormat())
    given = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(form).items()
        if value != default[key]
    }
    return ", ".join(f"{key}: {json.dumps(value)}" for key, value in given.items())


_BATCHES = ((32, 5_000), (128, 50_000), (512, 500_000), (1024, 10**18))
"""Batch sizes, each with the number of rows below which it is used."""

_TEST = '''"""Checks the workload: `pytest` in this folder."""

from pathlib import Path

import strategos

PIPELINE = Path(__file__).with_name("pipeline.yaml")


def test_the_settings_fit_the_modules_and_the_data():
    assert not strategos.validate(PIPELINE).problems


def test_an_epoch_ends_with_a_model_that_is_judged(tmp_path):
    sets = {"run.root": str(tmp_path / "root"), "trainer.epochs": 1}
    result = strategos.run(PIPELINE, sets=sets, to_node="Evaluator")
    assert result.error is None
    assert result.run.metrics
'''


def _text(text: str) -> str:
    """A text as YAML: as it is if that is safe, else quoted."""
    plain = text.replace("_", "").replace("-", "").replace("/", "").replace(".", "")
    words = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
    safe = plain.isalnum() and plain.isascii() and text[0].isalpha()
    return (
        text
        if safe and text.lower() not in words
        else json.dumps(text, ensure_ascii=False)
    )


def _quoted(text: str) -> str:
    """A text of a text-format protobuf."""
    escaped = "".join(
        f"\\{ord(each):03o}" if ord(each) < 32 or each in '"\\' else each
        for each in text
    )
    return f'"{escaped}"'


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)
