"""What two builds of a model must have in common: their structure and answers."""
