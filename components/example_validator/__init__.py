"""ExampleValidator: TFX's, in time linear in the columns."""
