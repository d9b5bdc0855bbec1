"""The format `kafkalike`: options and offsets of Spark's Kafka source in, records out; and rows in, by its sink."""
