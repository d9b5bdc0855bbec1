"""One-off jobs that copy part of a topic to files and tables, and back."""
