"""The phases of a training: their order, their layers, and how one ends early."""
