"""Locks: whose turn it is to write to a table of a local root, across threads and processes."""
