"""Works: the kinds of work of a maintenance run: retention, compaction, merging, vacuum, and the control tables."""
