"""Work on shards of data in a Beam pipeline, on any runner."""
