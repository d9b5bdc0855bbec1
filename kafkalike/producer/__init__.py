"""Producer: writes records to topics and returns their offsets."""

from kafkalike.producer.future import FutureRecordMetadata
from kafkalike.producer.kafka_producer import KafkaProducer, Transaction, transaction

__all__ = ["FutureRecordMetadata", "KafkaProducer", "Transaction", "transaction"]
