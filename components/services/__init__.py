"""Requests to services: Google's, Kubernetes; what their errors mean."""
