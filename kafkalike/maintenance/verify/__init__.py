"""Questions about a log, and the repair of what they find."""
