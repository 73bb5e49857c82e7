"""Data files of the user: their spans, columns and values, and rows as tf.Examples."""
