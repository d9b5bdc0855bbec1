"""Columns of other tools: the layouts of Arrow, and the names of headers."""
