"""TFMA's messages without the rest of TFMA, which imports TensorFlow and Beam."""

from __future__ import annotations

from importlib import metadata

from strategos.components import lone_messages

with lone_messages.of("tensorflow_model_analysis"):
    from tensorflow_model_analysis.proto import (
        config_pb2,
        metrics_for_slice_pb2,
        validation_result_pb2,
    )

VERSION = metadata.version("tensorflow-model-analysis")
"""As `tfma.VERSION_STRING`."""

__all__ = ["VERSION", "config_pb2", "metrics_for_slice_pb2", "validation_result_pb2"]
