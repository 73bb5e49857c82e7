"""Commands for pushed models, and for runs elsewhere."""

from __future__ import annotations

from strategos.pipeline.command_line.arguments import (
    Commands,
    Parents,
    age,
    count,
    names,
    port,
)


def add(commands: Commands, parents: Parents) -> None:
    """Adds these commands.

    Args:
      commands: The commands of `strategos`.
      parents: The options of all commands, and the pipeline with its settings.
    """
    predict = commands.add_parser(
        "predict", parents=parents, help="predict rows with the newest pushed model"
    )
    predict.add_argument(
        "rows",
        metavar="ROWS",
        nargs="*",
        help="a file in any format of `data.examples`, read as for training; -, or "
        "none: from standard input. With --output: files, folders, patterns, s3:// or "
        "gs://",
    )
    predict.add_argument("--json", action="store_true", help="print JSON lines")
    predict.add_argument(
        "--bad-rows",
        choices=("fail", "mark"),
        default="fail",
        help="fail at a row with a wrong or missing value (default), or answer it with "
        "its problem and go on",
    )
    predict.add_argument(
        "--files",
        type=names,
        default=(),
        metavar="NAME,…",
        help="columns with paths of files, such as images, relative to ROWS: the "
        "contents are the values",
    )
    predict.add_argument(
        "--explain",
        action="store_true",
        help="show how much each column contributes to the prediction of a row",
    )
    predict.add_argument(
        "--background",
        metavar="FILE",
        help="rows that --explain compares with (default: of the model's training)",
    )
    predict.add_argument(
        "--model",
        type=count,
        metavar="VERSION",
        help="a pushed version (default: the newest)",
    )
    predict.add_argument(
        "--output",
        metavar="FOLDER",
        help="write files of predictions and a manifest there, on the engine of the "
        "pipeline; the same command goes on after a kill",
    )
    predict.add_argument(
        "--format",
        choices=("parquet", "csv", "jsonl", "tfrecord"),
        help="of these files (default parquet)",
    )
    predict.add_argument(
        "--columns",
        type=names,
        metavar="NAME,…",
        help="columns of the rows to write beside the predictions",
    )
    predict.add_argument(
        "--spans",
        metavar="SPANS",
        help="spans of `data.examples` in place of ROWS: 3, 3..5, latest, all",
    )
    predict.add_argument(
        "--batch-size",
        type=count,
        metavar="N",
        help="rows that the model predicts at once, at most (default 4096)",
    )
    serve = commands.add_parser(
        "serve",
        parents=parents,
        help="answer TensorFlow Serving's requests with the pushed model",
    )
    serve.add_argument(
        "--model",
        metavar="DIR",
        help="a SavedModel, or a folder of numbered versions, in place of the "
        "pipeline's `pusher.to`",
    )
    serve.add_argument(
        "--port",
        type=port,
        default=8501,
        help="of REST; 0 for any free one (default: 8501)",
    )
    serve.add_argument(
        "--grpc-port", type=port, default=8500, help="of gRPC (default: 8500)"
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, for this machine only)",
    )
    models = commands.add_parser(
        "models",
        parents=parents,
        help="list the pushed versions of the model, or decide on the one that waits",
    )
    models.add_argument(
        "decision",
        nargs="*",
        metavar="approve|veto VERSION",
        help="with `pusher.approval`: make the version that waits live, or withdraw it",
    )
    models.add_argument(
        "--reason", default="", metavar="TEXT", help="why it is approved or vetoed"
    )
    models.add_argument(
        "--by", metavar="NAME", help="who decides (default: USER@HOST of the command)"
    )
    models.add_argument("--json", action="store_true", help="print JSON")
    canary = commands.add_parser("canary", help="decide on the model on trial")
    what = canary.add_subparsers(dest="what", required=True, metavar="promote|abort")
    promote = what.add_parser(
        "promote", parents=parents, help="judge it on the newest span; make it live"
    )
    promote.add_argument(
        "--unjudged", action="store_true", help="make it live without judging"
    )
    what.add_parser("abort", parents=parents, help="withdraw it")
    clean = commands.add_parser(
        "clean", parents=parents, help="remove artifacts that nothing needs any more"
    )
    clean.add_argument(
        "--delete", action="store_true", help="remove them; without it, only list them"
    )
    clean.add_argument(
        "--keep",
        type=count,
        default=10,
        metavar="N",
        help="keep the artifacts of the N newest runs with a model (default 10)",
    )
    clean.add_argument(
        "--records",
        action="store_true",
        help="also the records of all other runs in ML Metadata's SQLite database; a "
        "copy of the database stays",
    )
    clean.add_argument(
        "--older-than",
        type=age,
        default="30d",
        metavar="DURATION",
        help="keep everything that is younger; 0s for nothing (default 30d)",
    )
    clean.add_argument("--json", action="store_true", help="print JSON")
    rollback = commands.add_parser(
        "rollback", parents=parents, help="make an earlier pushed version live again"
    )
    rollback.add_argument(
        "version", nargs="?", type=count, metavar="VERSION", help="default: the former"
    )
    compile_ = commands.add_parser(
        "compile", parents=parents, help="write the pipeline for Kubeflow or Vertex"
    )
    compile_.add_argument("--target", choices=["kubeflow", "vertex"], required=True)
    compile_.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        help="default: NAME-kubeflow.yaml or NAME-vertex.json",
    )
    image = commands.add_parser(
        "image", help="build the image that the steps on a cluster run in"
    )
    what = image.add_subparsers(dest="what", required=True, metavar="build")
    build = what.add_parser(
        "build", parents=parents, help="build it with buildah, podman or docker"
    )
    build.add_argument("--target", choices=["kubeflow", "vertex"], required=True)
    build.add_argument(
        "--push", action="store_true", help="push it to the registry in its name"
    )
