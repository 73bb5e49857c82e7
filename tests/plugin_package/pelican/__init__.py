"""Plug-ins for Strategos, from outside of it."""
