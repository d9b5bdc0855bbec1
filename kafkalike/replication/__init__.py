"""Replication: the same tables at several roots: brokers, replicas, controllers, mirrors."""
