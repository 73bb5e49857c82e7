"""Compiles a pipeline for Kubeflow Pipelines and Vertex AI."""
