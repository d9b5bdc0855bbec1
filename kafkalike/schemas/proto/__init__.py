"""Protobuf's language: text of `.proto` files in, descriptors out, and back."""
