"""Runs of compiled pipelines on Kubeflow Pipelines and Vertex AI: submit and watch."""
