from __future__ import annotations

import pytest

from strategos.pipeline.config import loading
from strategos.pipeline.plan import caching, graph, planning


@pytest.fixture
def compiled(workload):
    """Compiles the workload with `--set` values; returns its nodes by id."""
    from tfx.dsl.compiler.compiler import Compiler

    def compile_with(*sets):
        config = loading.load(workload, (), sets).config
        defaults = planning.parameters(config, config.data.listing())
        fingerprints = caching.Fingerprints.of(config)
        return Compiler().compile(graph.build(config, fingerprints, defaults))

    return compile_with
