"""Compatibility of two schemas: what a reader with one cannot read of what the other wrote."""
