"""Corrections: what takes single records out of topics, or copies a topic: forget keys, undo appends, fork."""
