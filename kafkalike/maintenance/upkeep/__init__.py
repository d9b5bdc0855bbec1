"""Maintenance: what changes a topic besides appends."""
