"""`strategos debug`: one training step in the process of the command."""
