"""Topics: one topic's table as a log."""
