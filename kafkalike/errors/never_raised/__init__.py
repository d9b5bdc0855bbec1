"""Kafka's and kafka-python's other errors: ported code may name them; nothing in kafkalike raises them."""
