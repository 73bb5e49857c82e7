"""Pushes a blessed model to the folder that a model server reads, atomically."""

NEWEST_VARIABLE = "STRATEGOS_NEWEST_VERSION"
"""Environment variable: the version that was live at the start of the run; 0: none."""

ABORTED_VARIABLE = "STRATEGOS_ABORTED_MODELS"
"""Environment variable: JSON list of the ids of models with an aborted canary."""

WEIGHTS_VARIABLE = "STRATEGOS_PUSH_WEIGHTS"
"""Environment variable: "1" if versions are to contain the weights for a warm start.

Runs on a cluster find the weights there; their artifacts are out of each other's reach.
"""

PUSHER_VARIABLE = "STRATEGOS_PUSHED_BY"
"""Environment variable: JSON of who pushes, as in the key `PUSHED_BY` of a manifest."""

PUSHED_BY = "pushed_by"
"""Key of a manifest: `root`, the identity of a history of runs, and for people
`place` and `pipeline`."""

SLOT = "slot"
"""Property of a PushedModel that waits: `CANARY` or `APPROVAL`; missing otherwise."""

CANARY = "canary"
"""A model on trial, until the next span has judged it."""

APPROVAL = "approval"
"""A model that waits for a person's decision."""

ABORTED = "aborted"
"""Property of the PushedModel of an aborted canary: the id of its Model, -1 if unknown.
"""
