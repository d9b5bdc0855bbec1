"""The check of a batch, against a check of each record by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_OVERHEAD, check_batch, record_size
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.record_batch import Headers, RecordBatch
from kafkalike.model.topic import TopicInfo

NOW = 1_700_000_000_000
TOPIC = TopicInfo(name=TopicName("orders"), topic_id=TopicId("id"), location="orders", num_partitions=2)
STRICT = TopicConfig.from_properties(
    {
        "max.message.bytes": str(RECORD_OVERHEAD + 8),
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "500",
        "cleanup.policy": "compact",
    }
)
Row = tuple[int, bytes | None, bytes | None, int, Headers | None]

small = st.none() | st.binary(max_size=6)
rows = st.tuples(
    st.integers(-1, 2),
    small,
    small,
    st.sampled_from([-1, 0, NOW - 1001, NOW - 1000, NOW, NOW + 500, NOW + 501, MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS + 1]),
    st.none() | st.just([("é", None)]) | st.just([("h", b"1234")]),
)


def flaws(row: Row) -> set[type[KafkaError]]:
    """What is wrong with one record for the strict topic."""
    partition, key, value, at, headers = row
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    size += sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
    found: set[type[KafkaError]] = set()
    if partition not in {0, 1}:
        found.add(UnknownTopicOrPartitionError)
    if size > STRICT.max_message_bytes:
        found.add(MessageSizeTooLargeError)
    if not NOW - 1000 <= at <= NOW + 500:
        found.add(InvalidTimestampError)
    if key is None:
        found.add(InvalidRecordError)
    return found


@given(made=st.lists(rows, min_size=1, max_size=6))
def test_a_batch_is_as_good_as_its_records(made: list[Row]) -> None:
    """It is refused when one of them is, for a reason that one of them gives."""
    batch = RecordBatch()
    for row in made:
        batch.add(*row)
    wrong = set().union(*(flaws(row) for row in made))

    if not wrong:
        check_batch(batch, TOPIC, STRICT, NOW)
        return
    with pytest.raises(KafkaError) as caught:
        check_batch(batch, TOPIC, STRICT, NOW)
    assert type(caught.value) in wrong


@given(key=small, value=small, count=st.integers(0, 3))
def test_the_size_of_a_record_counts_all_of_it(key: bytes | None, value: bytes | None, count: int) -> None:
    """Null costs nothing, a header its key and value."""
    headers = [("é", b"xy")] * count

    expected = RECORD_OVERHEAD + len(key or b"") + len(value or b"") + 4 * count
    assert record_size(key, value, headers) == expected
