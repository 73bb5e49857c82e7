"""What the kernel allows this process: control groups, and kills for lack of memory."""
