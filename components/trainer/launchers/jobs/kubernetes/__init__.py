"""Jobs of Kubernetes: code that the launchers `kubernetes` and `tfjob` share."""
