"""The model that a candidate is compared with, as an artifact."""

NOTHING = "none"
"""The baseline's path, or a candidate's key, where there is none.

Not "": TFX takes an empty default of a runtime parameter for none at all.
"""
