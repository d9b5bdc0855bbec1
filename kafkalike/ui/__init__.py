"""The web console: topics, records, groups and lag of a cluster in a browser."""
