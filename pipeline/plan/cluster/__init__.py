"""What a pipeline becomes for Kubeflow Pipelines and Vertex AI."""
