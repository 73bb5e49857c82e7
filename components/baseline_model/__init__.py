"""The model that a candidate is compared with, as an artifact."""
