"""Mirrors: read-only copies of another cluster's topics, at the same offsets; the rules, without input and output."""
