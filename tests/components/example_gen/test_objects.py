"""Data in an object store are read as the same files of this machine."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import shutil
import socket
import time
from collections import Counter
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from strategos.components.data_files import listing, shards, spans
from strategos.components.errors import BadInputError, UserError

NAMES = (
    *("a.csv", "b.csv", ".hidden.csv", "notes.txt", "c.csv.gz", "x/a.csv", "x/y/a.csv"),
    *("span-1/a.csv", "span-2/a.csv", "span-2/.part.csv", "span-10/v1/a.csv"),
    *("span-10/v2/a.csv", "span-10/v2/b.csv", ".tmp/a.csv", "20130102.csv"),
)
PATTERNS = (
    *("*.csv", "*", "**/*.csv", "x/**/a.csv", "span-{SPAN}/*.csv", "?.csv", "[!b].csv"),
    *("span-{SPAN}/v{VERSION}/*.csv", "{DATE}.csv", "*/a.csv", "a.csv", "none/*.csv"),
)


@pytest.fixture(
    scope="module", params=["s3", pytest.param("gs", marks=pytest.mark.formats)]
)
def object_store(request):
    return request.param


@pytest.fixture
def upload(bucket, bucket_client):
    """Copies a local folder to an empty bucket; returns its URL."""

    def copy(folder: Path) -> str:
        listed = bucket_client.list_objects_v2(Bucket="bucket")
        for each in listed.get("Contents", []):
            bucket_client.delete_object(Bucket="bucket", Key=each["Key"])
        for file in filter(Path.is_file, folder.rglob("*")):
            key = f"data/{file.relative_to(folder)}"
            bucket_client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        return f"{bucket}/data"

    return copy


def write(folder, name, content="a\n1\n"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def found(root, pattern):
    """The editions that a pattern matches, with paths below `root`; or the message."""
    try:
        editions = spans.find_editions(f"{root}/{pattern}")
    except BadInputError as error:
        return type(error)
    return [
        (e.number, e.version, e.date, [f.removeprefix(f"{root}/") for f in e.files])
        for e in editions
    ]


def test_patterns_match_the_objects_that_they_match_as_files(tmp_path, upload):
    for name in NAMES:
        write(tmp_path, name)
    url = upload(tmp_path)
    for pattern in PATTERNS:
        assert found(url, pattern) == found(tmp_path, pattern), pattern
    assert found(url, "none/*.csv") is spans.NoFilesError


def test_nothing_found_names_what_is_there(tmp_path, upload):
    write(tmp_path, "span-1/a.csv")
    url = upload(tmp_path)
    with pytest.raises(spans.NoFilesError, match=f"Below {url}: span-1/, "):
        spans.find_spans(f"{url}/*/b.csv")


def test_what_is_deeper_than_the_pattern_is_not_listed(tmp_path, upload, bucket_client):
    write(tmp_path, "a.csv")
    url = upload(tmp_path)
    bucket_client.put_object(Bucket="bucket", Key="data/x//b.csv", Body=b"a\n1\n")
    assert found(url, "*.csv") == [(0, None, None, ["a.csv"])]
    # Older releases of Arrow cannot list below an empty name.
    message = "nesting depth|data/x//b.csv has an empty name"
    with pytest.raises(BadInputError, match=message):
        spans.find_spans(f"{url}/**/*.csv")


def test_folder_named_as_a_file_is_refused(tmp_path, upload):
    write(tmp_path, "day.parquet/part-0.parquet")
    url = upload(tmp_path)
    with pytest.raises(BadInputError, match=rf"the folder {url}/day.parquet"):
        spans.find_spans(f"{url}/*.parquet")


@pytest.mark.parametrize("pattern", ["s3://b*/x.csv", "s3://{SPAN}/x.csv", "s3://*"])
def test_pattern_without_a_bucket_is_refused(pattern):
    with pytest.raises(BadInputError, match="names no bucket"):
        spans.find_spans(pattern)


def test_fingerprint_follows_names_sizes_and_changes(tmp_path, upload, bucket_client):
    for span in (1, 2):
        write(tmp_path, f"{span}/a.csv")
    url = upload(tmp_path)
    before = spans.fingerprint(spans.find_spans(url + "/{SPAN}/*.csv"))
    assert before == spans.fingerprint(spans.find_spans(url + "/{SPAN}/*.csv"))
    # Two seconds later: an object's time has whole seconds. The size stays.
    bucket_client.put_object(Bucket="bucket", Key="data/2/a.csv", Body=b"a\n2\n")
    after = spans.fingerprint(spans.find_spans(url + "/{SPAN}/*.csv"))
    assert after != before


def test_span_is_complete_when_its_objects_rest(tmp_path, upload):
    write(tmp_path, "1/a.csv")
    write(tmp_path, "1/done")
    write(tmp_path, "2/a.csv")
    url = upload(tmp_path)
    editions = spans.find_editions(url + "/{SPAN}/*.csv")
    marked = listing.Completeness(marker=url + "/{SPAN}/done")
    assert [each.number for each in marked.of(editions, time.time())] == [1]
    quiet = listing.Completeness(quiet=60)
    assert not quiet.of(editions, time.time())
    assert len(quiet.of(editions, time.time() + 61)) == 2


def rows(count, seed):
    draw = random.Random(seed)
    texts = ["plain", '"two\nlines"', '"say ""x"", y"', "", "ü"]
    lines = ["text,number,label"]
    for row in range(count):
        lines.append(f"{draw.choice(texts)},{draw.random()},{row % 2}")
    return "\n".join(lines) + "\n"


def test_examples_are_those_of_the_same_files_here(tmp_path, upload, run, monkeypatch):
    large = write(tmp_path, "1/large.csv", rows(100_000, 1))
    monkeypatch.setattr(shards, "_LEAST_BYTES", large.stat().st_size // 3)  # is cut
    write(tmp_path, "1/small.csv.gz", gzip.compress(rows(500, 2).encode()))
    write(tmp_path, "2/a.csv", rows(300, 3))
    url = upload(tmp_path)
    for split in ({"by": "hash", "keys": ["number"]}, {"by": "ratio", "keys": []}):
        how = {"split": {**split, "train": 8, "eval": 2}, "label": "label"}
        here = run(f"{tmp_path}/{{SPAN}}/*", **how)
        there = run(url + "/{SPAN}/*", **how)
        report = "\n".join(here.report()).replace(str(tmp_path), url)
        assert there.report() == report.splitlines()
        assert files_of(there) == files_of(here)
    recorded = json.loads(there.artifact.get_string_custom_property("files"))
    assert recorded[0] == f"{url}/1/large.csv"


def test_parquet_is_read_by_row_group(tmp_path, upload, run):
    table = pa.table(
        {
            "list": [[n] * (n % 3) for n in range(50_000)],
            "text": [None if n % 7 == 0 else f"t{n}" for n in range(50_000)],
        }
    )
    pq.write_table(table, write(tmp_path, "a.parquet"), row_group_size=7_000)
    there, here = run(f"{upload(tmp_path)}/*.parquet"), run(f"{tmp_path}/*.parquet")
    assert files_of(there) == files_of(here)


@pytest.mark.formats
def test_each_format_is_read_as_here(tmp_path, upload, run, monkeypatch):
    rows = [{"x": n, "s": f"ü{n}" if n % 3 else None, "y": n % 2} for n in range(200)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    monkeypatch.setattr(shards, "_LEAST_BYTES", 1_000)  # files are cut
    write(tmp_path, "a.jsonl", lines)
    text = "x,s,y\n" + "".join(f"{r['x']},{r['s'] or ''},{r['y']}\n" for r in rows)
    write(tmp_path, "a.csv.bz2", bz2.compress(text.encode()))
    for name, content in (("b.json.zst", lines), ("b.csv.zst", text)):
        with pa.CompressedOutputStream(str(tmp_path / name), "zstd") as file:
            file.write(content.encode())
    po.write_table(pa.Table.from_pylist(rows), str(tmp_path / "a.orc"))
    fields = [{"name": "x", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
    fields.append({"name": "y", "type": "long"})
    with open(tmp_path / "a.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, rows)
    written = run(tmp_path / "a.jsonl")
    for split in ("train", "eval"):
        files = Path(written.artifact.uri, f"Split-{split}").glob("*.gz")
        for number, file in enumerate(files):
            shutil.copy(file, tmp_path / f"{split}{number}.tfrecord.gz")
    there, here = run(f"{upload(tmp_path)}/*"), run(f"{tmp_path}/*")
    assert files_of(there) == files_of(here)
    once, found = (
        Counter(str(sorted(row.items())) for row in each.features())
        for each in (written, here)
    )
    assert found == {row: 7 for row in once}


def files_of(examples):
    folder = Path(examples.artifact.uri)
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'a,b\n1,"2\n3,4\n', "a.csv: line "),
        ("a.csv", "a,b\n1,2\n3\n", "a.csv: line 3: expected 2 fields"),
        ("a.csv", "", "a.csv: is empty"),
        (
            "a.csv.gz",
            gzip.compress(b"a\n" + b"1\n" * 99, mtime=0)[:-9],
            "cut off or damaged",
        ),
        ("a.csv", "a\nü\n".encode("latin-1"), "UTF-8"),
        ("a.parquet", b"PAR1 and no more", "cannot be read as Parquet"),
    ],
)
def test_bad_objects_are_named_as_bad_files_are(
    tmp_path, upload, run, name, content, message
):
    write(tmp_path, name, content)
    url = upload(tmp_path)
    with pytest.raises(UserError) as there:
        run(f"{url}/*")
    with pytest.raises(UserError) as here:
        run(f"{tmp_path}/*")
    said = str(there.value)
    assert said == str(here.value).replace(str(tmp_path), url)
    assert f"{url}/{name}" in said and message in said


def test_store_that_does_not_answer_is_one_message(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("S3_ENDPOINT", address)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    with pytest.raises(BadInputError) as error:
        spans.find_spans("s3://bucket/data/*.csv")
    said = str(error.value)
    assert said.startswith("data.examples: s3://bucket/data cannot be read: ")
    assert "AWS_ACCESS_KEY_ID" in said
