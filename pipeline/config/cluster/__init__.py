"""The sections `kubeflow` and `vertex`, and those of batch systems."""
