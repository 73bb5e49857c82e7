"""A declarative TFX pipeline whose trainer picks its own `tf.distribute` strategy."""
