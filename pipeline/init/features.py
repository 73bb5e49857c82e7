"""Proposes a feature for each column, with the reason."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files.values.kinds import Kind
from strategos.components.wording import counted, cut
from strategos.pipeline.init.columns import Column
from strategos.pipeline.init.label import Label

_MOST_ENTRIES = 1000  # of a vocabulary; texts with more distinct values are hashed
_FEW = 12  # whole numbers with as many distinct values are categories
_SKEWED = 2.0  # the skewness of an exponential distribution
_MOST_VALUES = 4096  # of a row of a list column that is taken as it is
_ROWS_OF_VALUE = 5  # mean, by which a value says something about the label
_ALWAYS = 0.999
_IDENTIFIER = re.compile(r"(^|[_\W])(id|nr|no|key|index|uuid|guid)$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of the model, or a column that is left out.

    Attributes:
      column: The column.
      reason: The column's values, and their use.
      name: Name of the feature; "" if the column is left out.
      code: The expression in `preprocessing_fn`; "" if the column is left out.
      kind: Its treatment by the model: `number` (takes it as it is), `category` (embeds
        the entries of a vocabulary) or `hashed` (embeds buckets).
      size: Size of the vectors of a category.
      filling: Value in place of a missing one, for `data.missing`; None for none.
      missing: Expression of a further feature: 1 where the value is missing; or "".
    """

    column: Column
    reason: str
    name: str = ""
    code: str = ""
    kind: str = "number"
    size: int = 0
    filling: str | None = None
    missing: str = ""


def propose(columns: Sequence[Column], label: Label) -> list[Feature]:
    """A feature for each column but the label, in the order of the columns.

    Args:
      columns: All columns.
      label: The label.
    """
    names = _Names()
    return [
        _feature(column, label, names)
        for column in columns
        if column.name != label.column.name
    ]


def suspicion(column: Column) -> str:
    """Why a column says nothing about any label; "" if it may.

    Args:
      column: The column.
    """
    if not len(column.present):
        return "no value in any row"
    if column.distinct == 1 and not column.missing:
        return f"{_shown(next(iter(column.counts)))} in every row"
    if column.numbers_rows:
        return "numbers the rows"
    if column.is_unique and column.kind == Kind.INT and _IDENTIFIER.search(column.name):
        return "an identifier: another number in each row"
    if _is_token(column) and column.is_unique:
        return "an identifier: another text in each row"
    if column.kind == Kind.BYTES and not column.is_text:
        return "bytes that are not text"
    return ""


def gaps(column: Column) -> str:
    """Says how many numbers of a column are NaN or infinite; "" if none is."""
    number = column.not_finite
    return counted(number, "NaN or infinite number") if number else ""


def _is_token(column: Column) -> bool:
    """Whether texts are single words that are no dates and no numbers."""
    other = bool(column.date_order) or column.is_amount
    return column.is_text and column.words < 1.5 and not other


def _feature(column: Column, label: Label, names: _Names) -> Feature:
    reason = suspicion(column) or _leak(column, label)
    if reason:
        return Feature(column, reason)
    name = names.of(column.name)
    proposals = (rule(column, name) for rule in _RULES)
    return next(proposal for proposal in proposals if proposal)


def _leak(column: Column, label: Label) -> str:
    """Says that a column tells the label, if its values do in nearly all rows."""
    if column.is_list:
        return ""
    if label.task == "regression":
        same = _correlation(column, label.column)
        return f"a leak: correlation {same:.5f} with the label" if same else ""
    share = max((_tells(each, label) for each in _groups(column, label)), default=0.0)
    if share < _ALWAYS or share <= label.most_frequent:
        return ""
    return f"a leak: it tells the label in {share:.1%} of the rows"


def _groups(column: Column, label: Label) -> Iterator[pa.Array]:
    """Groups of the rows by value, by gap, and by size: at the label's share."""
    if column.distinct * _ROWS_OF_VALUE <= len(column.present):
        yield column.values
    if column.missing:
        yield column.values.is_null()
    if column.is_number and label.task == "binary":
        share = label.share_of_positives
        for limit in np.quantile(column.numbers, [share, 1 - share]):
            yield pc.greater(column.values, float(limit))
            yield pc.greater_equal(column.values, float(limit))


def _tells(groups: pa.Array, label: Label) -> float:
    """The share of the rows with the most frequent label of their group."""
    pairs = pa.table({"value": groups, "label": label.classes_of_rows})
    pairs = pairs.filter(pairs["label"].is_valid())
    ones = pa.array(np.ones(pairs.num_rows, np.int64))
    pairs = pairs.append_column("one", ones)
    counts = pairs.group_by(["value", "label"]).aggregate([("one", "sum")])
    best = counts.group_by("value").aggregate([("one_sum", "max")])
    return (pc.sum(best["one_sum_max"]).as_py() or 0) / max(1, pairs.num_rows)


def _correlation(column: Column, label: Column) -> float:
    """The absolute correlation of two columns of numbers if nearly 1, else 0."""
    if not column.is_number:
        return 0.0
    both = pc.and_(column.finite, label.finite)
    one, other = (
        each.values.filter(both).to_numpy(zero_copy_only=False).astype(np.float64)
        for each in (column, label)
    )
    if len(one) < 20 or not one.std() or not other.std():
        return 0.0
    correlation = abs(float(np.corrcoef(one, other)[0, 1]))
    return correlation if correlation > 0.9999 else 0.0


# --- Rules, in their order: each takes a column and the name of its feature, and
# returns a proposal or None.


def _of_lists(column: Column, name: str) -> Feature | None:
    if not column.is_list:
        return None
    value = f"inputs[{literal(column.name)}]"
    if column.is_text:
        reason = "several texts a row: counted by hash"
        return Feature(column, reason, name, f"_counts({value})")
    if column.length and column.length <= _MOST_VALUES:
        code = f"tft.scale_to_z_score({value}, elementwise=True)"
        return Feature(column, f"{column.length} numbers a row: z-scores", name, code)
    code = f"tft.scale_to_z_score(_mean({value}))"
    return Feature(column, "lists of numbers: z-score of the mean", name, code)


def _of_truth(column: Column, name: str) -> Feature | None:
    if not column.is_truth:
        return None
    code = (
        f"_is_one_of(inputs[{literal(column.name)}], {literal(column.true_spellings)})"
    )
    return Feature(column, "yes or no", name, code, filling="")


def _of_dates(column: Column, name: str) -> Feature | None:
    order = column.date_order
    if not order:
        return None
    spelled = {"y": "year", "m": "month", "d": "day"}
    reason = (
        f"dates as {'-'.join(spelled[each] for each in order)}: year, season, weekday"
    )
    code = f"_date(inputs[{literal(column.name)}], {literal(order)})"
    usual = sorted(map(str, column.counts))[column.distinct // 2]
    return Feature(column, reason, name, code, filling=usual)


def _of_amounts(column: Column, name: str) -> Feature | None:
    if not column.is_amount:
        return None
    usual = str(next(iter(column.counts)))
    comma = ", comma=True" if column.has_decimal_comma else ""
    number, reason = f"_amount(inputs[{literal(column.name)}]{comma})", "z-score"
    if _skewness(column.amounts) > _SKEWED and column.amounts.min() >= 0:
        number, reason = f"_logarithm({number})", "z-score of the logarithm"
    code = f"tft.scale_to_z_score({number})"
    reason = f"numbers as text, e.g. {_shown(usual)}: {reason}"
    return Feature(column, reason, name, code, filling=usual)


def _of_words(column: Column, name: str) -> Feature | None:
    if not column.is_text or column.words < 1.5:
        return None
    if 2 * column.distinct < len(column.present) and column.distinct <= _MOST_ENTRIES:
        return None  # a few phrases, each in many rows
    code = f"_counts(_words(inputs[{literal(column.name)}]))"
    reason = f"texts of about {column.words:.0f} words: counted by hash"
    return Feature(column, reason, name, code, filling="")


def _of_texts(column: Column, name: str) -> Feature | None:
    if not column.is_text:
        return None
    size, value = _vector(column), f"inputs[{literal(column.name)}]"
    if column.distinct > _MOST_ENTRIES:
        code = f"tft.hash_strings({value}, HASH_BUCKETS)"
        reason = f"{column.distinct:,} distinct texts: hashed"
        return Feature(column, reason, name, code, "hashed", size, "")
    code = f"_category({value}, {literal(name)})"
    reason = f"{column.distinct:,} distinct texts: vocabulary"
    return Feature(column, reason, name, code, "category", size, "")


def _of_codes(column: Column, name: str) -> Feature | None:
    if column.kind != Kind.INT or not 2 < column.distinct <= _FEW:
        return None
    value = f"inputs[{literal(column.name)}]"
    if column.missing:
        value = f"_filled({value}, {int(column.numbers.min()) - 1})"
    reason = f"{column.distinct} distinct whole numbers: vocabulary"
    code = f"_category({value}, {literal(name)})"
    return Feature(column, reason, name, code, "category", _vector(column))


def _of_numbers(column: Column, name: str) -> Feature:
    value, missing = f"inputs[{literal(column.name)}]", ""
    low, high = column.numbers.min(), column.numbers.max()
    skewness = _skewness(column.numbers)
    reason = f"{low:.6g} to {high:.6g}"
    usual = float(np.median(column.numbers))
    filling = f"{usual:.0f}" if column.kind == Kind.INT else f"{usual:.6g}"
    if column.missing:
        reason += f", {column.missing / column.rows:.1%} missing"
        missing, value = f"_is_missing({value})", f"_filled({value}, {filling})"
    if column.not_finite:
        reason += f", {gaps(column)}"
        value = f"_finite({value}, {filling})"
    if skewness > _SKEWED and low >= 0 and high > 10:
        code = f"tft.scale_to_z_score(_logarithm({value}))"
        reason += ", skewed: z-score of the logarithm"
    elif abs(skewness) > _SKEWED and column.distinct > 50:
        code = f"_quantile({value})"
        reason += ", skewed: quantile"
    else:
        code = f"tft.scale_to_z_score({value})"
        reason += ": z-score"
    return Feature(column, reason, name, code, missing=missing)


_RULES: Sequence[Callable[[Column, str], Feature | None]] = (
    *(_of_lists, _of_truth, _of_dates, _of_amounts, _of_words, _of_texts),
    *(_of_codes, _of_numbers),
)


def _skewness(numbers: np.ndarray) -> float:
    """The skewness of numbers: 0 if symmetric, 2 for an exponential distribution."""
    centred = numbers - numbers.mean()
    deviation = float(centred.std())
    return float((centred**3).mean()) / deviation**3 if deviation else 0.0


def _vector(column: Column) -> int:
    """Size of the vectors for the values of a category."""
    return min(16, max(2, math.ceil(math.sqrt(column.distinct))))


def literal(value: str | Sequence[str]) -> str:
    """Texts as Python source, with double quotes."""
    return json.dumps(value, ensure_ascii=False)


# Names that layers of the model have.
_RESERVED = ("concatenate", "dense", "dropout", "embedding", "flatten", "prediction")


class _Names:
    """Names of features: of letters, digits and underscores, each once."""

    def __init__(self) -> None:
        self._taken = set(_RESERVED)

    def of(self, column: str) -> str:
        """A name for the feature of a column."""
        plain = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode()
        name = re.sub(r"\W+", "_", plain).strip("_").lower() or "column"
        name = f"column_{name}" if name[0].isdigit() else name
        free, number = name, 2
        while {free, f"{free}_missing"} & self._taken:
            free, number = f"{name}_{number}", number + 1
        self._taken |= {free, f"{free}_missing"}
        return free


def _shown(value: object) -> str:
    return cut(repr(value), 40)
