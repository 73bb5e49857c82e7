"""Hosts that join a training by `strategos worker`, and where they meet."""
