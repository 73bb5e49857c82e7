"""Jobs of Kubernetes: what the launchers `kubernetes` and `tfjob` share."""
