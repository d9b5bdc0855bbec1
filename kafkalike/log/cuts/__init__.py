"""Snapshots of several topics and groups: what they say, and how they are taken."""
