"""Commits of a table, many in one file: what writers put for who opens the table, and what readers believe of it."""
