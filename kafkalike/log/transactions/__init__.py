"""Transactions over tables: staged files, decisions, and their application to topics."""
