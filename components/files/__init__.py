"""Files and file systems: remote paths, digests, temporary folders, a full disk."""
