"""Settings: Kafka's names for users, typed and checked fields inside."""
