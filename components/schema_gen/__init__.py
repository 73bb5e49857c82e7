"""SchemaGen: TFX's, which keeps columns without a value in one split."""
