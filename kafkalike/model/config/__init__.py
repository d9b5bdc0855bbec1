"""Settings: Kafka's names at the edge, typed and checked fields inside."""
