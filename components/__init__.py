"""TFX components of Strategos, one folder each (component.py, executor.py)."""
