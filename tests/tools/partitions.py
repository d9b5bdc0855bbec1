"""Partitions: an open log in, what can be read of one of its partitions out. Needs no tables."""

from kafkalike.log.topic.topic_log import TopicLog

READ_BYTES = 1 << 20


def partition_records(log: TopicLog, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Offset and value of all records of a partition, from the log start to the log end that this log has seen."""
    reader = log.reader(partition, log.log_start(partition))
    found: list[tuple[int, bytes | None]] = []
    while (chunk := reader.read(READ_BYTES)) is not None:
        columns = chunk.columns()
        found += zip(columns.offsets, columns.values, strict=True)
    return found


def partition_values(log: TopicLog, partition: int = 0) -> list[bytes | None]:
    """The values of `partition_records`."""
    return [value for _, value in partition_records(log, partition)]
