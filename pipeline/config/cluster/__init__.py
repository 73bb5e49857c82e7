"""The sections `kubeflow` and `vertex`."""
