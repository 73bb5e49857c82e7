"""Pushed models behind the interfaces of TensorFlow Serving, REST and gRPC."""
