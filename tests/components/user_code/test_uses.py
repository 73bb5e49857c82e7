"""What user code uses is recorded, however it names files, modules and variables."""

from __future__ import annotations

import itertools
import os
import tempfile
import textwrap
import threading

import ml_metadata
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_metadata.proto import metadata_store_pb2

from strategos.components import events
from strategos.components.user_code import modules, uses
from strategos.pipeline.root import uses as records

_NUMBERS = itertools.count()
NODE = "Transform"

# Ways to name the file `deep/er/NAME`, whose name is in `NAME`.
PATHS = (
    'HERE / "deep" / "er" / NAME',
    'dirname(__file__) + "/deep/er/" + NAME',
    'f"{HERE}/deep/er/{NAME}"',
    'HERE.parent / HERE.name / "deep" / "er" / NAME',
    'join(HERE, *["deep", "er"], NAME)',
    '"%s/%s/%s" % (HERE, "deep/er", NAME)',
    "next(HERE.rglob(NAME))",
    'HERE.joinpath("deep").joinpath("x").with_name("er") / NAME',
    'os.fsencode(HERE / "deep" / "er" / NAME)',
    'os.path.relpath(HERE / "deep" / "er" / NAME)',
    '[*sorted(glob.glob(f"{HERE}/deep/*/{NAME[:2]}*"))][0]',
    'HERE / "".join(map(chr, [100, 101, 101, 112, 47, 101, 114])) / NAME',
)
READERS = (
    "open(path).read()",
    "pathlib.Path(os.fsdecode(path)).read_bytes()",
    "io.FileIO(path).readall()",
    "os.read(os.open(path, os.O_RDONLY), 9)",
    "mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ)[:]",
    "codecs.open(path).read()",
    "numpy.loadtxt(os.fsdecode(path))",
    "numpy.fromfile(path, 'u1')",
    "tf.io.read_file(os.fsdecode(path)).numpy()",
    "tf.function(lambda: tf.io.read_file(os.fsdecode(path)))()",
    "tf.io.gfile.GFile(path).read()",
    "GFile(path).read()",
    "tf.io.gfile.glob(os.fsdecode(path))",
    "list(tf.data.TextLineDataset(os.fsdecode(path)))",
    "list(tf.data.TextLineDataset([os.fsdecode(path)]))",
    "tf.data.TFRecordDataset(os.fsdecode(path))",
    "list(tf.data.FixedLengthRecordDataset(tf.constant(os.fsdecode(path)), 2))",
    "list(tf.data.Dataset.list_files(os.fsdecode(path)).flat_map("
    "tf.data.TextLineDataset))",
    "tf.lookup.TextFileInitializer(os.fsdecode(path), tf.string, -2, tf.int64, -1)",
    "tf.lookup.TextFileInitializer(filename=os.fsdecode(path), key_dtype=tf.string, "
    "key_index=-2, value_dtype=tf.int64, value_index=-1)",
    "pa.memory_map(os.fsdecode(path)).read()",
    "pa.OSFile(os.fsdecode(path)).read()",
    "pa.input_stream(os.fsdecode(path)).read()",
    "pyarrow.csv.read_csv(os.fsdecode(path))",
    "pyarrow.dataset.dataset(os.fsdecode(path), format='csv').to_table()",
    "list(tf.data.Dataset.from_tensors(0).map(lambda _: tf.py_function("
    "lambda: open(path).read(), [], tf.string)))",
)
# Ways to run the module `deep/er/NAME`.
IMPORTS = (
    "runpy.run_path(path)",
    "exec(compile(open(path).read(), path, 'exec'))",
    "importlib.machinery.SourceFileLoader('other', path).load_module()",
    "spec = importlib.util.spec_from_file_location('other', path)\n"
    "spec.loader.exec_module(importlib.util.module_from_spec(spec))",
    "sys.path.insert(0, dirname(path))\n"
    "importlib.import_module(NAME[:-3])\n"
    "sys.path.remove(dirname(path))",
    "sys.path.append(dirname(path))\n"
    "__import__(NAME[:-3])\n"
    "sys.path.remove(dirname(path))",
    "importlib.import_module('.er.' + NAME[:-3], 'deep')",
    "exec('from deep.er import ' + NAME[:-3])",
)
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
        events.open_sink(self.sink, node=NODE)
        fingerprints = {NODE: self.known().fingerprint}
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
        records.record_node(self.store, NODE, self.sink)

    def known(self):
        return records.known(self.store, NODE, self.static, self.code)

    def names(self):
        """The names in the newest record, without modules of `run` and of tests."""
        context = records._context(self.store, NODE, self.static)
        found = records._records(context)[-1]["uses"]
        return {x for x in found if not x.startswith(("file module", "file ../.."))}


@pytest.fixture
def follows(workload):
    """Fails unless a module's record follows one file, and no unrelated one."""

    def check(source, file, content="1.0\n2.0\n", other="3.0\n2.0\n"):
        used = workload.write(file, content)
        unrelated = workload.write("deep/unrelated/other.txt", "1")
        workload.run(source)
        assert workload.known() == records.Known(workload.static, holds=True)
        unrelated.write_text("2")
        assert workload.known().holds
        used.write_text(other)
        now = workload.known()
        assert not now.holds and now.changed == (f"file {file}",)
        used.write_text(content)
        assert workload.known() == records.Known(workload.static, holds=True)
        used.unlink()
        assert not workload.known().holds

    return check


some = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@some
@given(
    path=st.sampled_from(PATHS),
    reader=st.sampled_from(READERS),
    name=st.from_regex(r"[a-z]{3,8}\.(txt|csv|dat)", fullmatch=True),
)
def test_a_file_is_followed_however_it_is_named_and_read(
    workload, follows, path, reader, name
):
    workload.renew()
    follows(f"NAME = {name!r}\npath = {path}\n{reader}\n", f"deep/er/{name}")


@pytest.mark.parametrize("reader", READERS)
def test_each_way_to_read_a_file_is_seen(follows, reader):
    follows(f'NAME = "v.txt"\npath = {PATHS[0]}\n{reader}\n', "deep/er/v.txt")


@some
@given(path=st.sampled_from(PATHS), how=st.sampled_from(IMPORTS), data=st.data())
def test_a_module_is_followed_however_it_is_imported(
    workload, follows, path, how, data
):
    workload.renew()
    name = f"part{next(_NUMBERS)}{data.draw(st.sampled_from(['', '_x']))}.py"
    source = f"NAME = {name!r}\npath = os.path.abspath(os.fsdecode({path}))\n{how}\n"
    follows(source, f"deep/er/{name}", "SCALE = 1.0\n", "SCALE = 2.0\n")


@pytest.mark.parametrize(
    "source",
    [
        "os.environ.get('SCALE')",
        "os.getenv('SCALE')",
        "get = os.getenv\nget('SC' + 'ALE')",
        "from os import environ as settings\nsettings['SCALE']",
        "'SCALE' in vars(os)['environ']",
        "os.path.expandvars('$SCALE/x')",
        "tf.autograph.to_graph(lambda: os.environ['SCALE'])()",
    ],
)
def test_variables_are_followed_by_any_name_and_never_stored(
    workload, monkeypatch, source
):
    monkeypatch.setenv("SCALE", "a-secret")
    workload.run(source)
    assert "variable SCALE" in workload.names()
    context = records._context(workload.store, NODE, workload.static)
    assert "a-secret" not in str(context)
    assert workload.known().holds
    monkeypatch.setenv("SCALE", "another")
    assert workload.known().changed == ("variable SCALE",)
    monkeypatch.delenv("SCALE")
    assert not workload.known().holds
    monkeypatch.setenv("SCALE", "a-secret")
    assert workload.known().holds


def test_a_copy_of_the_environment_reads_no_variable(workload, monkeypatch):
    monkeypatch.setenv("STRATEGOS_WORKLOAD", "{}")
    workload.run(
        """
        dict(os.environ), os.environ.copy(), {**os.environ}, list(os.environ.items())
        import tempfile
        tempfile.gettempdir()
        os.environ.get("STRATEGOS_WORKLOAD"), os.environ.get("TF_CONFIG")
        """
    )
    assert not {x for x in workload.names() if x.startswith("variable")}


def test_what_is_installed_temporary_or_data_is_left_out(workload):
    for name in ("runs/x.txt", "data/a.csv", "data/a.txt"):
        workload.write(name, "1")
    workload.run(
        """
        import tempfile, this
        for name in ("runs/x.txt", "data/a.csv", "data/a.txt"):
            open(HERE / name).read()
        open(numpy.__file__), open(os.__file__), open("/proc/self/stat")
        tempfile.TemporaryFile().close()
        tempfile.NamedTemporaryFile().close()
        (HERE / "log.txt").write_text("written only")
        """
    )
    assert workload.names() == {"file data/a.txt"}


def test_files_beside_the_target_of_a_linked_module_are_followed(workload):
    shared = workload.parent / "shared"
    shared.mkdir()
    (shared / "linked.py").write_text(
        "import pathlib\n"
        "V = (pathlib.Path(__file__).resolve().parent / 'v.txt').read_text()\n"
    )
    (shared / "v.txt").write_text("1")
    (workload.folder / "linked.py").symlink_to(shared / "linked.py")
    workload.run("import linked")
    (shared / "v.txt").write_text("2")
    assert workload.known().changed == ("file ../shared/v.txt",)


@pytest.mark.parametrize(
    "listing",
    [
        'list((HERE / "parts").glob("*.txt"))',
        'os.listdir(HERE / "parts")',
        'list(os.walk(HERE / "parts"))',
        'tf.io.gfile.listdir(str(HERE / "parts"))',
        'list(tf.io.gfile.walk(f"{HERE}/parts"))',
    ],
)
def test_a_file_that_appears_and_a_name_that_joins_a_listed_folder_count(
    workload, listing
):
    a = workload.write("parts/a.txt", "1")
    workload.run(
        f"""
        {listing}
        try:
            open(HERE / "optional.txt")
        except FileNotFoundError:
            pass
        """
    )
    optional = workload.write("optional.txt", "1")
    assert workload.known().changed == ("file optional.txt",)
    optional.unlink()
    assert workload.known().holds
    a.write_text("2")
    assert workload.known().holds
    workload.write("parts/b.txt", "2")
    assert workload.known().changed == ("folder parts",)


def test_a_file_edited_while_it_is_in_use_is_read_again(workload):
    used = workload.write("v.txt", "1")
    source = "open(HERE / 'v.txt').read()"
    workload.run(source, then=lambda: used.write_text("2"))
    assert workload.known().changed == ("file v.txt",)
    workload.run(source)
    assert workload.known().holds


def test_a_file_that_the_code_itself_writes_is_no_edit(workload):
    workload.run(
        """
        (HERE / "v.txt").write_text("1")
        (HERE / "v.txt").read_text()
        with open(HERE / "v.txt", "a") as file:
            file.write("2")
        """
    )
    assert workload.names() == {"file v.txt"} and workload.known().holds


def test_each_state_of_the_files_has_its_fingerprint(workload):
    used, seen = workload.write("v.txt", "0"), {}
    for value in (0, 1, 2, 1, 0, 2, 3, 0):
        used.write_text(str(value))
        now = workload.known()
        assert now.holds == (value in seen)
        assert seen.setdefault(value, now.fingerprint) == now.fingerprint
        if not now.holds:
            workload.run("open(HERE / 'v.txt').read()")
    assert len(set(seen.values())) == 4


def test_a_killed_node_is_recorded_by_the_next_run(workload):
    used = workload.write("v.txt", "1")
    workload.begin()
    events.emit("node_started")
    with uses.recording():
        used.read_text()
    records.record_killed(workload.store, workload.sink)
    assert workload.known().holds
    used.write_text("2")
    assert workload.known().changed == ("file v.txt",)


def test_only_what_was_killed_in_the_middle_is_recorded_later(workload):
    workload.begin()
    events.emit("node_started")
    events.emit("node_finished")
    records.record_killed(workload.store, workload.sink)
    assert not workload.known().holds


def test_nothing_stays_replaced_and_threads_may_record_at_once(workload):
    before = _replaced()
    used = [workload.write(f"{n}.txt", "1") for n in range(40)]
    workload.begin()

    def read(path):
        for _ in range(20):
            with uses.recording():
                tf.io.read_file(str(path))
                path.read_text()

    threads = [threading.Thread(target=read, args=(path,)) for path in used]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _replaced() == before
    found = events.recorded(workload.sink, uses.EVENT)
    assert sorted(
        x["file"] for x in found if x.get("file") in map(str, used)
    ) == sorted(map(str, used))
    used[0].with_name("later.txt").write_text("1")
    used[0].with_name("later.txt").read_text()
    assert events.recorded(workload.sink, uses.EVENT) == found


def _replaced():
    return (
        *(type(os.environ), tf.io.read_file, tf.io.gfile.glob, tf.io.gfile.GFile),
        *(tf.io.gfile.GFile.__base__.__init__, tf.data.TextLineDataset.__init__),
        *(tf.lookup.TextFileInitializer.__init__, pa.memory_map, pa.OSFile),
    )
