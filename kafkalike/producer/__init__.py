"""Producer: records in, the offsets they got out."""

from kafkalike.producer.context import Transaction, transaction
from kafkalike.producer.future import FutureRecordMetadata
from kafkalike.producer.kafka_producer import KafkaProducer

__all__ = ["FutureRecordMetadata", "KafkaProducer", "Transaction", "transaction"]
