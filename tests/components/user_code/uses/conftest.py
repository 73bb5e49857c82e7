"""A workload whose modules' uses are recorded."""

from __future__ import annotations

import itertools
import tempfile
import textwrap

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2

from strategos.components import events
from strategos.components.user_code import modules, uses
from strategos.pipeline.root import uses as records

_NUMBERS = itertools.count()
HEADER = """
import codecs, glob, importlib.machinery, importlib.util, io, mmap, os, pathlib, runpy
import sys
from os.path import dirname, join

import numpy, pyarrow as pa, pyarrow.csv, pyarrow.dataset, tensorflow as tf
from tensorflow.io.gfile import GFile

HERE = pathlib.Path(__file__).parent
"""


@pytest.fixture
def workload(tmp_path, monkeypatch):
    """A workload whose modules' uses are recorded."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    before = events.sink_path()
    yield Workload(tmp_path)
    modules.activate(str(tmp_path / "tmp"))
    events.open_sink(before)


class Workload:
    """User code whose uses are recorded as those of one node."""

    node = "Transform"

    def __init__(self, folder):
        self.parent = folder
        config = metadata_store_pb2.ConnectionConfig()
        config.fake_database.SetInParent()
        self.store = ml_metadata.MetadataStore(config)
        self.renew()

    def renew(self):
        """Starts again, with another folder and without any record."""
        self.folder = self.parent / f"w{next(_NUMBERS)}"
        self.folder.mkdir()
        self.static = f"static{next(_NUMBERS)}"
        self.code = records.Code(
            folder=str(self.folder),
            root=str(self.folder / "runs"),
            left_out=(str(self.folder / "runs"),),
            data=(str(self.folder / "data" / "*.csv"),),
        )

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def begin(self):
        """Opens the event file of a new run."""
        self.sink = str(self.parent / f"{next(_NUMBERS)}.events")
        events.open_sink(self.sink, node=self.node)
        fingerprints = {self.node: self.known().fingerprint}
        events.emit(records.CODE, **vars(self.code) | {"fingerprints": fingerprints})
        modules.activate(str(self.folder))

    def run(self, source, then=lambda: None):
        """Loads a module, and records what it uses."""
        name = f"module{next(_NUMBERS)}"
        self.write(f"{name}.py", HEADER + textwrap.dedent(source))
        self.begin()
        with uses.recording():
            modules.load(str(self.folder), name)
        then()
        records.record_node(self.store, self.node, self.sink)

    def known(self):
        return records.known(self.store, self.node, self.static, self.code)

    def names(self):
        """The names in the newest record, without modules of `run` and of tests."""
        context = records._context(self.store, self.node, self.static)
        found = records._records(context)[-1]["uses"]
        return {x for x in found if not x.startswith(("file module", "file ../.."))}
