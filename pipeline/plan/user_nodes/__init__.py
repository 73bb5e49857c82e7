"""The user's own components: their specifications, and checks against these."""
