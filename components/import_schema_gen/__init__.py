"""ImportSchemaGen: the curated schema, checked."""
