"""The model: Kafka's nouns and rules as pure Python values; no I/O, no Spark, no clock."""
