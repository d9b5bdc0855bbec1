"""Footers: what Parquet keeps beside its pages, where pyarrow does not read or write it."""
