"""The files of a new workload."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.data_files.sources.reading import CsvFormat
from strategos.components.data_files.values.kinds import Kind
from strategos.components.evaluation.metrics import METRICS
from strategos.components.files import commit
from strategos.pipeline.config import MAIN_FILE, introspect
from strategos.pipeline.config.sections import Config
from strategos.pipeline.init import modules
from strategos.pipeline.init.columns import Column
from strategos.pipeline.init.features import Feature
from strategos.pipeline.init.first_fit import Bound
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
    """The findings of `strategos init`, and its folder to write to.

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

    def set_bound(self, bound: Bound) -> None:
        """Writes a bound on the task's main metric into the YAML.

        Args:
          bound: The bound.

        Raises:
          OSError: The file cannot be written.
        """
        commit.write(self.folder / MAIN_FILE, self._settings(bound))

    @property
    def main_metric(self) -> str:
        """The metric that the bound is for."""
        return _METRICS[self.label.task][0]

    def _files(self) -> dict[str, str]:
        label, features = self.label, self.features
        return {
            MAIN_FILE: self._settings(),
            _EDITORS: introspect.json_schema(Config, METRICS.own),
            "preprocessing.py": modules.preprocessing(features, label, self.origin),
            "model.py": modules.model(features, label, self.origin),
            "schema.pbtxt": self._schema(),
            "test_workload.py": _TEST,
        }

    def _settings(self, bound: Bound | None = None) -> str:
        task = self.label.task
        limits = [f"    {_BETTER[task]}: {{better_than: trivial}}"]
        if bound:
            limits.append(f"    {self.main_metric}: {{{bound}}}  # {bound.why}")
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
        return f"""# yaml-language-server: $schema={_EDITORS}
# Predicts {_text(self.label.column.name)} ({self.label.reason}).
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
        schema = schema_pb2.Schema(feature=map(self._declared, self.columns))
        if self.label.is_text:
            domain = schema_pb2.StringDomain(name="label", value=self._spellings())
            schema.string_domain.append(domain)
        return (
            "# Types and presence of the columns, as TensorFlow Metadata: a new file "
            "that differs\n# stops the run. "
            f"Written by `{self.origin}`; yours to edit.\n"
        ) + text_format.MessageToString(schema, as_utf8=True)

    def _spellings(self) -> list[str]:
        """All texts of the label: another one in new data is an anomaly."""
        if self.label.task == "multi_class":
            return list(self.label.classes)
        return sorted(map(str, self.label.column.counts))

    def _declared(self, column: Column) -> schema_pb2.Feature:
        feature = schema_pb2.Feature(name=column.name)
        feature.type = schema_pb2.FeatureType.Value((column.kind or Kind.BYTES).name)
        is_label = column.name == self.label.column.name
        if is_label and self.label.is_text:
            feature.domain = "label"
        # Rows without a label are left out.
        is_full = is_label or not column.missing
        feature.presence.SetInParent()
        if is_full:
            feature.presence.min_fraction, feature.presence.min_count = 1, 1
        length = column.length if column.is_list else 1
        if is_full and length:
            feature.shape.dim.add(size=length)
        elif not column.is_list:
            feature.value_count.max = 1
        return feature


def _written_csv(form: CsvFormat) -> str:
    """The settings of `data.csv` that differ from the defaults."""
    default = dataclasses.asdict(CsvFormat())
    settings = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(form).items()
        if value != default[key]
    }
    return ", ".join(f"{key}: {json.dumps(value)}" for key, value in settings.items())


_EDITORS = ".pipeline.schema.json"
"""File with the keys for editors; `strategos docs --schema` prints the newest."""

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
    is_word = re.fullmatch(r"[A-Za-z][\w./-]*", text, re.ASCII)
    safe = is_word and text.lower() not in ("null", "true", "false")
    return text if safe else json.dumps(text, ensure_ascii=False)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)
