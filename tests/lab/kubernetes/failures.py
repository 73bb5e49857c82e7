"""The one error of these scripts."""


class ClusterError(Exception):
    """A problem that its reader can solve; shown without a traceback.

    Args:
      message: What is wrong, and what to do.
      exit_code: 1, or 2 if this machine lacks something.
    """

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code
