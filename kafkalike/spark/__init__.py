"""What Spark users touch: a session, the `kafkalike` format, SQL."""
