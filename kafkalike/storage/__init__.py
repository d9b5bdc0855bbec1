"""Stores: bytes below a root. Knows files and objects, and no table."""
