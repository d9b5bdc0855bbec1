"""Columns: records with schemas as Arrow arrays, many at a time, and back."""
