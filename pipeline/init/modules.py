"""The source of `preprocessing.py` and `model.py` of a new workload."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from strategos.pipeline.init.features import Feature, literal
from strategos.pipeline.init.label import Label

_BUCKETS = 1000
_WORD_BUCKETS = 256

_CONSTANTS = {
    "HASH_BUCKETS": f"HASH_BUCKETS = {_BUCKETS}",
    "COUNTED_BUCKETS": f"COUNTED_BUCKETS = {_WORD_BUCKETS}",
    "DAYS_BEFORE_MONTH": (
        "DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)"
    ),
}
"""Lines of `preprocessing.py` that stand there if its code uses the name."""

_HELPERS = {
    "_category": '''
def _category(value, name):
    """Index in a vocabulary of values that occur twice or more; one more for others."""
    return tft.compute_and_apply_vocabulary(
        value, frequency_threshold=2, num_oov_buckets=1, vocab_filename=name
    )
''',
    "_class": '''
def _class(value, classes):
    """The index of each value `[batch, 1]` in `classes`; -1 if it is not among them."""
    same = tf.equal(value, tf.constant([classes]))
    index = tf.argmax(same, axis=1)[:, tf.newaxis]
    return tf.where(tf.reduce_any(same, axis=1, keepdims=True), index, -1)
''',
    "_is_one_of": '''
def _is_one_of(value, spellings):
    """1 where a value `[batch, 1]` is among the spellings, 0 elsewhere."""
    same = tf.equal(value, tf.constant([spellings]))
    return tf.cast(tf.reduce_any(same, axis=1, keepdims=True), tf.float32)
''',
    "_logarithm": '''
def _logarithm(value):
    """The logarithm of one more than a number that is not negative."""
    return tf.math.log1p(tf.maximum(tf.cast(value, tf.float32), 0))
''',
    "_quantile": '''
def _quantile(value):
    """The share of the training rows, in tenths, with a smaller number."""
    return tf.cast(tft.bucketize(value, 10), tf.float32) / 10
''',
    "_filled": '''
def _filled(value, usual):
    """A column that may be empty as `[batch, 1]`, with `usual` where it is."""
    usual = tf.constant(usual, value.dtype)
    return tft.sparse_tensor_to_dense_with_shape(value, [None, 1], usual)
''',
    "_finite": '''
def _finite(value, usual):
    """A column `[batch, 1]` with `usual` in place of NaN and infinite numbers."""
    return tf.where(tf.math.is_finite(value), value, usual)
''',
    "_is_missing": '''
def _is_missing(value):
    """1 where a column is empty, 0 elsewhere: `[batch, 1]`."""
    ones = tf.SparseTensor(
        value.indices, tf.ones_like(value.values, tf.float32), value.dense_shape
    )
    return 1 - tft.sparse_tensor_to_dense_with_shape(ones, [None, 1], 0.0)
''',
    "_amount": '''
def _amount(text, comma=False):
    """The number in a text such as `$1,234.50`, or `1.234,50` if `comma`; else 0."""
    text = tf.strings.regex_replace(text, "[.]" if comma else ",", "")
    text = tf.strings.regex_replace(text, ",", ".")
    plain = tf.strings.regex_replace(text, "[^0-9.-]", "")
    is_number = tf.strings.regex_full_match(plain, r"-?[0-9]*[.]?[0-9]+[.]?")
    return tf.strings.to_number(tf.where(is_number, plain, "0"))
''',
    "_date": '''
def _date(text, order):
    """Year, season and weekday of dates: `[batch, 7]`.

    Args:
      text: `[batch, 1]`.
      order: The order of year, month and day, e.g. `dmy`.
    """
    digits = tf.strings.regex_replace(tf.reshape(text, [-1]), "[^0-9]+", " ")
    parts = tf.strings.split(digits).to_tensor("0", shape=[None, 6])
    number = tf.strings.to_number(parts, tf.int64)
    year, month, day = (number[:, order.index(each)] for each in "ymd")
    month = tf.clip_by_value(month, 1, 12)
    day_of_year = tf.gather(tf.constant(DAYS_BEFORE_MONTH, tf.int64), month - 1) + day
    past = year - tf.cast(month <= 2, tf.int64)  # whose 29 February is over
    leap_days = past // 4 - past // 100 + past // 400
    weekday = (year * 365 + leap_days + day_of_year) % 7
    hour = number[:, 3]
    cycles = [_circle(day_of_year, 365), _circle(weekday, 7), _circle(hour, 24)]
    years = tf.cast(year, tf.float32) + tf.cast(day_of_year, tf.float32) / 365
    return tf.concat([tft.scale_to_z_score(years)[:, tf.newaxis], *cycles], axis=1)


def _circle(value, period):
    """A time as a point on a circle, so that 23:59 is next to 0:00: `[batch, 2]`."""
    angle = tf.cast(value, tf.float32) * (2 * math.pi / period)
    return tf.stack([tf.sin(angle), tf.cos(angle)], axis=1)
''',
    "_mean": '''
def _mean(value):
    """The mean of the numbers of each row, 0 for none: `[batch, 1]`."""
    numbers = tf.SparseTensor(
        value.indices, tf.cast(value.values, tf.float32), value.dense_shape
    )
    ones = tf.SparseTensor(
        value.indices, tf.ones_like(numbers.values), value.dense_shape
    )
    total, count = (tf.sparse.reduce_sum(each, axis=1) for each in (numbers, ones))
    return tf.reshape(tf.math.divide_no_nan(total, count), [-1, 1])
''',
    "_words": '''
def _words(text):
    """The words of each text `[batch, 1]`, in lower case, as a SparseTensor."""
    text = tf.strings.lower(tf.reshape(text, [-1]), encoding="utf-8")
    plain = tf.strings.regex_replace(text, r"[^\\pL\\pN]+", " ")
    return tf.strings.split(plain).to_sparse()
''',
    "_counts": '''
def _counts(texts):
    """The logarithm of how often texts of each hash are in a row."""
    buckets = tft.hash_strings(texts.values, COUNTED_BUCKETS)
    row = texts.indices[:, 0]
    rows = texts.dense_shape[0]
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(buckets, tf.float32),
        row * COUNTED_BUCKETS + buckets,
        rows * COUNTED_BUCKETS,
    )
    return tf.math.log1p(tf.reshape(counts, [-1, COUNTED_BUCKETS]))
''',
}
"""Functions of `preprocessing.py` that stand there if its code calls them."""


def preprocessing(features: Sequence[Feature], label: Label, origin: str) -> str:
    """The source of `preprocessing.py`.

    Args:
      features: The features and the columns that are left out.
      label: The label.
      origin: The command that writes it, for its docstring.
    """
    lines = []
    for feature in (each for each in features if each.name):
        lines.append(f"        # {_one_line(feature.column.name)}: {feature.reason}.")
        lines.append(f'        "{feature.name}": {feature.code},')
        if feature.missing:
            lines.append(f'        "{feature.name}_missing": {feature.missing},')
    body = "\n".join(lines)
    code = f'''def preprocessing_fn(inputs):
    """Returns the features of `model.py` and the label, each `[batch, n]`."""
    return {{
{body}
        {literal(label.column.name)}: {_of_label(label)},
    }}
'''
    helpers = _used(code)
    used = code + "".join(helpers)
    constants = [line for name, line in _CONSTANTS.items() if name in used]
    if label.task == "multi_class":
        constants.append(f"CLASSES = {literal(label.classes)}")
    imports = ["import math\n"] if "math.pi" in used else []
    imports += ["import tensorflow as tf"] if "tf." in used.replace("tft.", "") else []
    imports += ["import tensorflow_transform as tft"] if "tft." in used else []
    head = (
        f'"""Features of the columns, by TensorFlow Transform.\n\n{_written(origin)}\n'
    )
    left_out = [each for each in features if not each.name]
    if left_out:
        head += "\nLeft out:\n" + "".join(
            f"- {_one_line(each.column.name)}: {each.reason}\n" for each in left_out
        )
    head = head.replace("\\", "\\\\").rstrip("\n") + '\n"""\n\n'
    blocks = ["\n".join(imports), *(["\n".join(constants)] if constants else [])]
    return (
        head
        + "\n\n".join(blocks)
        + "\n\n\n"
        + code
        + "".join(f"\n{h}" for h in helpers)
    )


def _used(code: str) -> list[str]:
    """The helpers that the code calls, and those that they call."""
    wanted = [name for name in _HELPERS if f"{name}(" in code]
    return [_HELPERS[name] for name in wanted]


def _of_label(label: Label) -> str:
    value = f"inputs[{literal(label.column.name)}]"
    if label.task == "multi_class":
        return f"_class({value}, CLASSES)"
    if label.positives:
        return f"_is_one_of({value}, {literal(label.positives)})"
    return value


def model(features: Sequence[Feature], label: Label, origin: str) -> str:
    """The source of `model.py`.

    Args:
      features: The features and the columns that are left out.
      label: The label.
      origin: The command that writes it, for its docstring.
    """
    kinds = {
        kind: {
            each.name: each.size for each in features if each.name and each.kind == kind
        }
        for kind in ("category", "hashed")
    }
    constants = ""
    if kinds["category"]:
        constants += (
            "# Sizes of the vectors that stand for the entries of a vocabulary.\n"
            f"CATEGORIES = {_mapping(kinds['category'])}\n"
        )
    if kinds["hashed"]:
        constants += (
            "# The same for texts that are hashed.\n"
            f"HASHED = {_mapping(kinds['hashed'])}\n"
        )
    steps = ""
    if kinds["category"]:
        steps += """        if name in CATEGORIES:
            vectors = context.embedding(name, CATEGORIES[name])
            value = layers.Flatten()(vectors(value))
"""
    if kinds["hashed"]:
        imported = "from preprocessing import HASH_BUCKETS\n"
        steps += """        if name in HASHED:
            vectors = layers.Embedding(HASH_BUCKETS, HASHED[name])
            value = layers.Flatten()(vectors(value))
"""
    else:
        imported = ""
    if label.task == "multi_class":
        imported += "from preprocessing import CLASSES\n"
    imported = _joined(imported)
    units, loss, metric = _OUTPUTS[label.task]
    output = f'layers.Dense({units}, name="prediction")(hidden)'
    if label.task == "regression":
        low, high = label.column.numbers.mean(), label.column.numbers.std()
        constants += (
            "# The label's usual size: its mean and its standard deviation.\n"
            f"MEAN, DEVIATION = {_short(low)}, {_short(high)}\n"
        )
        output = (
            "layers.Dense(1)(hidden)\n    output = layers.Rescaling(DEVIATION, MEAN, "
            'name="prediction")(output)'
        )
    return f'''"""A network that predicts {_one_line(label.column.name)}.

{_written(origin)}
"""

import tensorflow as tf
{imported}
{constants}UNITS, DROPOUT = {_size(features, label)}


def build_model(context):
    """Returns a compiled model of the features of `preprocessing.py`."""
    layers, inputs, parts = tf.keras.layers, context.inputs(), []
    for name, value in inputs.items():
{steps}        parts.append(value)
    hidden = layers.Concatenate()(parts)
    for number, units in enumerate(UNITS):
        hidden = layers.Dense(units, activation="relu")(hidden)
        hidden = context.dropout(DROPOUT, seed=number)(hidden)
    output = {output}
    model = tf.keras.Model(inputs, output)
    model.compile(tf.keras.optimizers.Adam(2e-3), "{loss}", metrics=["{metric}"])
    return model
'''


_OUTPUTS = {
    "binary": ('1, activation="sigmoid"', "binary_crossentropy", "AUC"),
    "multi_class": (
        'len(CLASSES), activation="softmax"',
        "sparse_categorical_crossentropy",
        "accuracy",
    ),
    "regression": ("1", "mean_squared_error", "mean_absolute_error"),
}
"""Arguments of the last layer, loss and metric by task."""


_SIZES = (
    (20, (16,), 0.4),
    (100, (32, 16), 0.2),
    (2000, (64, 32), 0.1),
    (math.inf, (128, 64), 0.05),
)
"""Units and dropout of the layers, by training rows for each number in the input."""


def _size(features: Sequence[Feature], label: Label) -> str:
    """Units and dropout: fewer units where few rows meet many columns."""
    width = sum(_WORD_BUCKETS if "_counts(" in each.code else 1 for each in features)
    rows = len(label.column.present) / max(1, width)
    units, rate = next((units, rate) for most, units, rate in _SIZES if rows < most)
    return f"{units}, {rate}"


def _joined(imported: str) -> str:
    names = sorted(line.rpartition(" ")[2] for line in imported.splitlines())
    return f"from preprocessing import {', '.join(names)}\n" if names else ""


def _mapping(sizes: dict[str, int]) -> str:
    """A dict as code, one entry a line if it is long."""
    entries = [f'"{name}": {size}' for name, size in sizes.items()]
    short = "{" + ", ".join(entries) + "}"
    if len(short) < 70:
        return short
    return "{\n" + "".join(f"    {entry},\n" for entry in entries) + "}"


def _short(number: float) -> str:
    return f"{np.float64(number):.6g}"


def _written(origin: str) -> str:
    return f"Written by `{origin}`; yours to edit."


def _one_line(text: str) -> str:
    """A name for a comment or a docstring: without line breaks and quotes."""
    return " ".join(text.replace('"', "'").split())
