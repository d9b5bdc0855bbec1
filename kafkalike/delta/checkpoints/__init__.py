"""Checkpoints of a table, and what they make unnecessary."""
