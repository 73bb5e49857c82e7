"""Transform: the user's `preprocessing_fn`, analyzed and applied."""

from __future__ import annotations

STATES_VARIABLE = "STRATEGOS_ANALYSIS_STATES"
"""Names the environment variable with the folder of kept states; may be missing."""
