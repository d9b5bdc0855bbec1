"""Mirrors: topics of one cluster in, the same tables in another cluster out."""
