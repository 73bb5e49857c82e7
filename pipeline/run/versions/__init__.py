"""Pushed versions that become live without a run: canary, approval, rollback."""
