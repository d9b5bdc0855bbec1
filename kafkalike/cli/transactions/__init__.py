"""The command that looks at transactions and ends those that hang."""
