"""Clusters: topics as rows of a table, and where their tables are."""
