"""Expressions: Columns and DataFrames in, Columns and DataFrames out; no session, no action."""
