"""How messages write numbers and names: one form each, wherever they are read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_CHOICES = 12


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `1,234 files`.

    Args:
      number: The number.
      noun: The noun in the singular.
      plural: The plural, if it is not `noun` with an `s`, e.g. `classes`.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(seconds: float | None) -> str:
    """`8.1 s`, `42 s`, `1 min 42 s`, `2 h 05 min`, `3 days 4 h`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    hours, rest_minutes = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes} min {rest:02} s"
    days, rest_hours = divmod(hours, 24)
    if days < 2:
        return f"{hours} h {rest_minutes:02} min"
    return f"{days} days {rest_hours} h" if rest_hours else f"{days} days"


def data_size(number: float) -> str:
    """Bytes in decimal units: `830 bytes`, `4.1 kB`, `12.5 MB`, `1,024.0 GB`."""
    for unit in ("bytes", "kB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; "" for none."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def first(items: Sequence[str], most: int) -> list[str]:
    """The first `most` of `items`; the others as one more item, `and 7 more`."""
    return [*items[:most], *_more(len(items) - most)]


def abridged(names: Sequence[str], most: int) -> str:
    """`a, b, c`; of more than `most` names `a, b and 7 more`."""
    return " ".join([", ".join(names[:most]), *_more(len(names) - most)])


def choices(names: Iterable[str]) -> str:
    """The names, of more than a dozen the first ones; "none" if there are none."""
    return abridged(list(names), _CHOICES) or "none"


def did_you_mean(word: str, choices: Iterable[str], otherwise: str = "") -> str:
    """A question with the nearest of `choices`; `otherwise` if none is near."""
    near = nearest(word, choices)
    return f"Did you mean `{near}`?" if near else otherwise


def _more(rest: int) -> list[str]:
    return [f"and {rest:,} more"] if rest > 0 else []


def quoted(names: Iterable[str]) -> list[str]:
    """Each name in backticks."""
    return [f"`{name}`" for name in names]


def cut(text: str, most: int) -> str:
    """`text`, cut to at most `most` characters, the last of them `…`."""
    return text if len(text) <= most else text[: most - 1] + "…"


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` was most likely meant to be, or None.

    A choice that `word` abbreviates (`acc`) or ends with (`roc_auc`) comes before one
    that differs from it by few letters. Upper and lower case are alike.
    """
    word, choices = word.lower(), list(choices)
    lowered = {choice.lower(): choice for choice in reversed(choices)}
    matches = [
        choice
        for choice in lowered
        if (choice.startswith(word) and len(word) > 2) or word.endswith(f"_{choice}")
    ]
    if len(matches) != 1:
        matches = difflib.get_close_matches(word, lowered, n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None
