"""Clusters of several storage roots: which there are, who has what, and what happens when one fails."""
