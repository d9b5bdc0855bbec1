"""kafkalike: topics that are Delta tables, with Kafka's model and kafka-python's names."""
