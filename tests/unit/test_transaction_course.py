"""The course of a transaction and its upkeep, act by act."""
