"""Replication: the replicas of a table, the order in which they take a version, failover and the quorum; pure."""
