"""The sections `kubeflow` and `vertex`, and the sections of batch systems."""
