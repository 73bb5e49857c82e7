"""Nodes of the user's own: any TFX component that `nodes` of the YAML names."""

USER_MODULE = "user_module"
"""The execution property with the module of a node, beside the component's own."""
