"""What a run may take from earlier ones: nothing damaged, nor of other user code."""
