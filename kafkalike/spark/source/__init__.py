"""The format `kafkalike`: options of Spark's Kafka source in, records out, in batches and streams."""
