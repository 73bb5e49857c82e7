"""Flink under Beam: the jars, a cluster on this machine, the job server, jobs."""
