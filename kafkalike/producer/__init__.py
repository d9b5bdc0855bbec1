"""Producer: records in, the offsets they got out."""

from kafkalike.producer.future import FutureRecordMetadata
from kafkalike.producer.kafka_producer import KafkaProducer, Transaction, transaction

__all__ = ["FutureRecordMetadata", "KafkaProducer", "Transaction", "transaction"]
