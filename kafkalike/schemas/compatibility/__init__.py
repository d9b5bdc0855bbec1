"""Compatibility of two schemas: which records of the writer's schema the reader's schema cannot read."""
