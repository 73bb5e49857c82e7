"""Requests to Google's services and Kubernetes, and explanations of their errors."""
