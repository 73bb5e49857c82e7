"""The sections of `trainer.distribution` for training as a job of a batch system."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from strategos.pipeline.config.problems import reject
from strategos.pipeline.config.types import Allowed, Duration, Section, seconds

# What `components/trainer/launchers/slurm.py` sets for each job.
_RESERVED = (
    "account",
    "array",
    "chdir",
    "dependency",
    "error",
    "job-name",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "output",
    "partition",
    "requeue",
    "time",
    "wait",
    "wrap",
)


def _option(text: str) -> str:
    name = text.partition("=")[0].removeprefix("--").removeprefix("no-")
    if name in _RESERVED:
        remedy = "Remove it; trainer.distribution has the settings of a job."
        raise reject(f"Strategos itself sets --{name} for each job", remedy=remedy)
    return text


Option = Annotated[
    str,
    StringConstraints(pattern=r"^--[a-z][a-z0-9-]*(=[^\n]*)?$"),
    Allowed("options of sbatch in their long form, such as --gres=gpu:2"),
    AfterValidator(_option),
]


class Slurm(Section):
    """Settings for `launcher: slurm` only."""

    partition: str | None = Field(
        None, min_length=1, description="Partition. By default, the cluster's default."
    )
    account: str | None = Field(
        None, min_length=1, description="Account that is charged for the job."
    )
    time_limit: Duration | None = Field(
        None,
        description="Time limit of one job, rounded up to minutes. A job whose time is "
        "up is followed by another one, which resumes from the last checkpoint. By "
        "default, the partition's limit.",
    )
    pending_timeout: Duration = Field(
        "1d", description="Time allowed for a job to wait in Slurm's queue."
    )
    options: Annotated[tuple[Option, ...], Field(strict=False)] = Field(
        (),
        description="Further options of sbatch, in their long form: "
        "`[--gres=gpu:2, --exclusive]`.",
    )

    def operation(self) -> dict[str, Any]:
        """The settings with times in seconds."""
        plain = self.model_dump(mode="json")
        for key in ("time_limit", "pending_timeout"):
            plain[key] = plain[key] and float(seconds(plain[key]))
        return plain
