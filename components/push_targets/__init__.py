"""Where models are pushed to: folders of numbered versions, here or in a store."""
