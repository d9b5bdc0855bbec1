"""Replication: which roots hold a topic, in what order they take a version, and what happens when one fails; pure."""
