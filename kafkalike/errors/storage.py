"""Storage: what stops reading or writing the files of a log, and what is wrong with them."""

from __future__ import annotations

from kafkalike.errors.base import BrokerResponseError, InvalidMetadataError, KafkaError, RetriableError


class KafkaConnectionError(InvalidMetadataError):
    """The storage root cannot be reached."""


class UnsafeStorageError(KafkaError):
    """This storage cannot keep several writers apart, so writing to it is refused."""


class UnknownOutcomeError(KafkaError):
    """A write may or may not have happened, and the process could not find out.

    Args:
        what: the operation.
        append_id: the id the write carries in the table's history, to look for it later.
    """

    def __init__(self, what: str, append_id: str) -> None:
        super().__init__(f"{what}: the outcome is unknown; look for append id {append_id} with `kafkalike dump-log`")
        self.what = what
        self.append_id = append_id


class DataLossError(KafkaError):
    """Records that were promised are gone: a hole in a partition that should be dense."""


class LogCorruptError(KafkaError):
    """A topic table breaks an invariant of the log: a foreign writer changed it, or a file is damaged."""


class CorruptRecordError(BrokerResponseError):
    """A data file cannot be read or does not hold what the log says."""

    errno = 2


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class LeaderNotAvailableError(InvalidMetadataError, BrokerResponseError):
    """The partition has no writer now."""

    errno = 5


class NotLeaderForPartitionError(InvalidMetadataError, BrokerResponseError):
    """Another root leads the partition."""

    errno = 6


class NotEnoughReplicasError(RetriableError, BrokerResponseError):
    """Fewer replicas than `min.insync.replicas` asks for."""

    errno = 19


class UnsupportedVersionError(BrokerResponseError):
    """A newer layout, a Delta feature that is not supported, or a cluster of one root that got others meanwhile."""

    errno = 35


class KafkaStorageError(InvalidMetadataError, BrokerResponseError):
    """The storage failed to read or write; nothing was written."""

    errno = 56
