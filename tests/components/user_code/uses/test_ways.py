"""Each way to name, read or import a file, and to read a variable, is followed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategos.pipeline.root import uses as records

pytestmark = pytest.mark.long

_NUMBERS = itertools.count()

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
    context = records._context(workload.store, workload.node, workload.static)
    assert "a-secret" not in str(context)
    assert workload.known().holds
    monkeypatch.setenv("SCALE", "another")
    assert workload.known().changed == ("variable SCALE",)
    monkeypatch.delenv("SCALE")
    assert not workload.known().holds
    monkeypatch.setenv("SCALE", "a-secret")
    assert workload.known().holds
