"""InfraValidator: the exported model, loaded and asked in a fresh process."""
