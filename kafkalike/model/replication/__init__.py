"""Replication: registration of replicas, the order in which they take versions, failover and the quorum; pure Python."""
