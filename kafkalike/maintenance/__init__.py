"""Maintenance: retention, compaction, merging, vacuum; verify and repair; forget, undo, fork and restore."""
