"""Launchers: where a training's worker processes run."""
