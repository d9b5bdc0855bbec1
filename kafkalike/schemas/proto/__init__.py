"""Protobuf files: parse their text into descriptors and print them."""
