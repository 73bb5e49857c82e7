"""User code: how its modules are found, imported and fingerprinted."""
