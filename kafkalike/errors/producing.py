"""Producing: records that a topic refuses, and producers whose sequence or transaction is not in order."""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, KafkaError, RetriableError


class MessageSizeTooLargeError(BrokerResponseError):
    """A record is larger than `max_request_size` or the topic's `max.message.bytes` allow."""

    errno = 10


class RecordListTooLargeError(BrokerResponseError):
    """A batch is larger than allowed."""

    errno = 18


class InvalidTimestampError(BrokerResponseError):
    """A record's timestamp is negative, too large, or outside what the topic allows."""

    errno = 32


class OutOfOrderSequenceNumberError(BrokerResponseError):
    """A producer's sequence numbers have a gap."""

    errno = 45


class CheckpointMismatchError(OutOfOrderSequenceNumberError):
    """A stream's id was used by another checkpoint, or by a newer state of this one; nothing was written."""


class DuplicateSequenceNumberError(BrokerResponseError):
    """A producer's sequence number was seen before."""

    errno = 46


class InvalidProducerEpochError(BrokerResponseError):
    """A producer of an older epoch: its transaction was aborted by a timeout or by an administrator."""

    errno = 47


class InvalidTxnStateError(BrokerResponseError):
    """A transaction cannot have this outcome: it has the other one already."""

    errno = 48


class InvalidTransactionTimeoutError(BrokerResponseError):
    """`transaction_timeout_ms` is above the server's `transaction.max.timeout.ms`."""

    errno = 50


class ConcurrentTransactionsError(RetriableError, BrokerResponseError):
    """Another transaction of this producer is still under way."""

    errno = 51


class UnknownProducerIdError(BrokerResponseError):
    """The producer id is not known."""

    errno = 59


class InvalidRecordError(BrokerResponseError):
    """A record that the topic does not take, for example one without a key in a compacted topic."""

    errno = 87


class ProducerFencedError(BrokerResponseError):
    """A newer producer with the same transactional id took over."""

    errno = 90


class TransactionalIdNotFoundError(BrokerResponseError):
    """There is no such transactional id, or it was forgotten."""

    errno = 105


class TransactionAbortableError(BrokerResponseError):
    """The transaction cannot be committed; abort it, and go on with the same producer."""

    errno = 120


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted before the record was written."""
