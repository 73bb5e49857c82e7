"""`python -m …vertex.task URL`: a task of a custom job of Vertex AI, in a container.

Vertex AI names the tasks in CLUSTER_SPEC and TF_CONFIG.
"""

from __future__ import annotations

import sys

from strategos.components.trainer.launchers.jobs import remote_task

if __name__ == "__main__":
    remote_task.main(sys.argv[1], "vertex.service_account", "vertex")
