"""Clusters: topics as rows of the metadata table, and the folders of their tables."""
