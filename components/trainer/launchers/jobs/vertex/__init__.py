"""Trainings as custom jobs of Vertex AI: the job, its tasks and their logs."""
