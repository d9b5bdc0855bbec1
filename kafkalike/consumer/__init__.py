"""Consumer: topics or partitions in, records out, positions committed."""

from kafkalike.consumer.kafka_consumer import KafkaConsumer
from kafkalike.consumer.subscription import ConsumerRebalanceListener

__all__ = ["ConsumerRebalanceListener", "KafkaConsumer"]
