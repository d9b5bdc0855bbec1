"""Consumer: reads the records of topics or partitions, and commits its positions."""

from kafkalike.consumer.kafka_consumer import KafkaConsumer
from kafkalike.consumer.subscription import ConsumerRebalanceListener

__all__ = ["ConsumerRebalanceListener", "KafkaConsumer"]
