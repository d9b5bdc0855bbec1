"""Combining: what waits beside a table (`parts`), and the course of one append there (`course`)."""
