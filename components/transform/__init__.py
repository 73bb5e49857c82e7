"""Transform: the user's `preprocessing_fn`, analyzed and applied."""
