"""Replication: registration of replicas, the order in which they take versions, failover and quorum; pure Python."""
