"""Input pipelines over transformed examples."""
