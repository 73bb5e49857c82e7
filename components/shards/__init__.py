"""Work on shards of data, on the engine of the run."""
