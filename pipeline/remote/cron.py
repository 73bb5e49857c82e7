"""Five fields of cron, as services read them.

Settings have the fields of Debian's cron. Kubeflow Pipelines reads them by version 1 of
github.com/robfig/cron: six fields, seconds first, the days of the week from 0 to 6. Of
five fields it takes the first for seconds and the last for the month, and accepts
them. Vertex AI reads five fields after `TZ=ZONE`.
"""

from __future__ import annotations

import datetime
import zoneinfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

from strategos.pipeline.config.sections import Config

_FIELDS = (Field.MINUTE, Field.HOUR, Field.DAY, Field.MONTH, Field.DOW)


def fields(config: Config) -> str:
    """`schedule.cron` with plain numbers, which every service reads in the same way.

    Raises:
      BadInputError: It is not set, or has a form that services do not know.
    """
    schedule = config.schedule
    if schedule is None or not schedule.cron:
        raise config.problem(
            "schedule.cron",
            "is missing, and determines when a service starts runs",
            remedy="Set it, such as `30 2 * * 1-5`.",
        )
    words = schedule.cron.upper().split()
    try:
        return " ".join(map(_plain, _FIELDS, words))
    except TypeError:
        raise config.problem(
            "schedule.cron",
            "services know neither `L`, `W` nor `#`",
            received=schedule.cron,
        ) from None


def seconds_first(config: Config) -> str:
    """`schedule.cron` as Kubeflow Pipelines reads it.

    Raises:
      BadInputError: As `fields` does; or the time zone differs from the one time zone
        of all schedules of KFP.
    """
    cron_fields = fields(config)
    assert config.schedule is not None and config.kubeflow is not None
    here, there = config.schedule.timezone, config.kubeflow.timezone
    if here != there:
        raise config.problem(
            "schedule.timezone",
            f"Kubeflow Pipelines reads all schedules in {there}",
            received=here,
            remedy=f"Write `schedule.cron` in {there}; or start KFP with "
            f"CRON_SCHEDULE_TIMEZONE={here}, and set kubeflow.timezone to it.",
        )
    return f"0 {cron_fields}"


def zoned(config: Config) -> str:
    """`schedule.cron` as Vertex AI reads it.

    Raises:
      BadInputError: As `fields` does.
    """
    cron_fields = fields(config)
    assert config.schedule is not None
    return f"TZ={config.schedule.timezone} {cron_fields}"


def next_of_kfp(expression: str, zone: str, now: float) -> float | None:
    """The next time of an expression by KFP's reading; None if it never comes.

    Args:
      expression: Six fields, seconds first, or five without the day of the week.
      zone: Time zone of KFP's schedules.
      now: Unix seconds.
    """
    words = expression.split()
    six = " ".join([*words, "*"] if len(words) == 5 else words)
    begin = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(zone))
    try:
        return next(CronSim(six, begin)).timestamp()
    except (CronSimError, StopIteration):
        return None


def _plain(field: Field, text: str) -> str:
    """A field as numbers; a first `*` stays, because it changes how days combine."""
    first, _, rest = text.partition(",")
    if not first.startswith("*"):
        first, rest = "", text
    parts = field.parse(rest) if rest else ()
    numbers = {_number(each) for each in parts}
    if field == Field.DOW:
        numbers = {number % 7 for number in numbers}  # 7 is Sunday, as 0 is
    return ",".join([*([first] if first else []), *map(str, sorted(numbers))])


def _number(item: object) -> int:
    if not isinstance(item, int) or item < 0:
        raise TypeError(item)
    return item
