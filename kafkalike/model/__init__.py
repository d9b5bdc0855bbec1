"""The model: Kafka's nouns and rules as pure Python values, without I/O, Spark or clocks."""
