"""Hosts that join a training by `strategos worker`, and the folder they meet in."""
