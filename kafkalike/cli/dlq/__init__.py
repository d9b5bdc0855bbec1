"""The command `dlq`: dead letters."""
