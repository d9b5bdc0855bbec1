"""Replicas of a table on several roots: the effects of `kafkalike.model.replication`, done to stores."""
