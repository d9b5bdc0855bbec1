"""Calls of a storage that may hang: they are given up after a while."""
