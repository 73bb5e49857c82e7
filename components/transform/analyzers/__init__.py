"""TFT's analyzers on one machine: a fold over the shards for each phase."""
