"""containerd, its images, and what containers see of this machine."""
