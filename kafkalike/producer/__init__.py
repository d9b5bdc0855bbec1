"""Producer: records in, the offsets they got out."""

from kafkalike.producer.client import KafkaProducer
from kafkalike.producer.context import Transaction, transaction
from kafkalike.producer.future import FutureRecordMetadata

__all__ = ["FutureRecordMetadata", "KafkaProducer", "Transaction", "transaction"]
