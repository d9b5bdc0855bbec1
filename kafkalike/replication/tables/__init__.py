"""Replicas of a table on several roots: apply the effects of `kafkalike.model.replication` to storages."""
