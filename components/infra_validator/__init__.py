"""InfraValidator: loads and calls the exported model in a fresh process."""
