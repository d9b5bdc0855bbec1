"""Verify: checks of topics, groups, schemas, transactions and replicas, and the repair of damage."""
