"""Replicas of a table on several roots: the acts of `kafkalike.model.replication`, done to stores."""
