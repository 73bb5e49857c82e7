"""The values of a file's columns: numbers and texts as features hold them."""
