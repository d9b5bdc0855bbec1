"""Maintenance: retention, compaction, vacuum, verify and repair of topics; forget, undo and fork of records."""
