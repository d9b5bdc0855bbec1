"""Lag: a cluster in, how far its groups are behind and how that moved out; from file statistics, no record is read."""
