"""The format `kafkalike`: a source with the options and offsets of Spark's Kafka source, and its sink."""
