"""Components of the user's own: their specifications, and what fits these."""
