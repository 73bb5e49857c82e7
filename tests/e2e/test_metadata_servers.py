"""ML Metadata on real database servers."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("server", ["mariadb", "postgresql"])
def test_run_is_recorded_and_cached_on_a_server(
    server, request, make_flights, metadata_password, monkeypatch
):
    url = request.getfixturevalue(server)
    workspace = make_flights()
    arguments = ("--set", f"run.metadata={url}")
    for _ in range(2):
        workspace.run(*arguments, "--to", "ExampleGen")
    overlay = workspace.folder / "pipeline.yaml"
    overlay.write_text(overlay.read_text() + f"run: {{metadata: '{url}'}}\n")
    listed = workspace.strategos("runs", str(workspace.yaml), "--json").stdout
    assert len(json.loads(listed)) == 2
    assert workspace.states() == {"ExampleGen": "cached"}
    shown = workspace.strategos("config", str(workspace.yaml), *arguments).stdout
    assert metadata_password not in shown
    kept = [path for path in (workspace.folder / "runs").rglob("*") if path.is_file()]
    assert not any(metadata_password.encode() in path.read_bytes() for path in kept)
    monkeypatch.setenv("STRATEGOS_METADATA_PASSWORD", "wrong")
    refused = workspace.run(*arguments, expect=2)
    assert "STRATEGOS_METADATA_PASSWORD" in refused.stderr
