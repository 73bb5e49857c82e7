"""The launcher `tfjob`: the TFJob, its tasks and their output."""
