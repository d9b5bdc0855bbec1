"""Transactions over tables: staged files, decisions, and what brings them into topics."""
