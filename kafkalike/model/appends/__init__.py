"""Appends: the rules of commits that many writers share, and of batches that are written once."""
