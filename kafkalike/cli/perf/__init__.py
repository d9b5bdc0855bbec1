"""Commands that measure how fast records are sent and read."""
