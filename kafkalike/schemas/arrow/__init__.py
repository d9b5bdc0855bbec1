"""Conversion of batches of records with schemas to Arrow columns, and back."""
