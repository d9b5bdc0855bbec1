"""Commands that print records and send lines."""
