"""Reads a pipeline.yaml: pydantic then has the models that each command would build."""

from __future__ import annotations

from pathlib import Path

from strategos.pipeline.config import loading

loading.load(Path(__file__).parents[1] / "examples" / "flights" / "pipeline.yaml")
