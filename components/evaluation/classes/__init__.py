"""Labels of several classes a row: their entries, sums and metrics."""
