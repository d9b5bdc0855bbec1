"""Compatibility: two schemas in, out what a reader with one cannot read of what the other wrote."""
