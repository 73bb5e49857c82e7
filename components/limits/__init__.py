"""Limits that the kernel sets this process: control groups, and out-of-memory kills."""
