"""The processes of a training on one host: start, heartbeat, watchdog, end."""
