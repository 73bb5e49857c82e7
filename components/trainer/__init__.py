"""Trainer: a component, and a runtime that imports TensorFlow but never TFX."""
