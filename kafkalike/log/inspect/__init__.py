"""Questions about a log that change nothing."""
