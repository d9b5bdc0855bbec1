"""Records: partitions and values in, batches out; and a log in, everything that can be read of it out."""

from typing import Any, Protocol

from kafkalike.log.connect import connect
from kafkalike.log.port import TopicLog
from kafkalike.log.topic_log import DeltaTopicLog
from kafkalike.model.batch import RecordBatch

NOW_MS = 1_700_000_000_000
READ_BYTES = 1 << 20


class _OpensLogs(Protocol):
    def log(self, name: str) -> TopicLog: ...


def batch(*records: tuple[int, str], at_ms: int = NOW_MS) -> RecordBatch:
    """A batch of values by partition, all of one time."""
    made = RecordBatch()
    for partition, value in records:
        made.add(partition, None, value.encode(), at_ms)
    return made


def records_of(log: TopicLog, partition: int) -> list[tuple[int, str]]:
    """Offset and value of all records of a partition, from the log start to the log end."""
    reader = log.reader(partition, log.log_start(partition))
    found: list[tuple[int, str]] = []
    while (chunk := reader.read(READ_BYTES)) is not None:
        columns = chunk.columns()
        found += zip(columns.offsets, [(v or b"").decode() for v in columns.values], strict=True)
    return found


def all_records(root: str, topic: str = "t") -> dict[int, list[tuple[int, str]]]:
    """What a reader that comes new sees of a topic, by partition."""
    return everything(connect(root).log(topic))


def everything(log: TopicLog) -> dict[int, list[tuple[int, str]]]:
    """The records of an open log, by partition."""
    return {p: records_of(log, p) for p in log.info.partitions}


def open_log(cluster: _OpensLogs, topic: str = "t") -> DeltaTopicLog:
    """The log of a topic in Delta tables."""
    log: Any = cluster.log(topic)
    assert isinstance(log, DeltaTopicLog)
    return log


def make_topic(root: str, *records: tuple[int, str], partitions: int = 2, topic: str = "t") -> DeltaTopicLog:
    """A new topic with some records in one append."""
    cluster = connect(root)
    cluster.create_topic(topic, partitions, {})
    log = open_log(cluster, topic)
    if records:
        log.append(batch(*records))
    return log
