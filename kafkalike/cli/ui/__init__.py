"""The command that serves the web console."""
