"""Tables become the records that their rows say, however Arrow holds them."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import KafkaError
from kafkalike.log.topic.column_batch import ColumnPayload, column_batch
from kafkalike.log.topic.record_rules import check_batch, record_size
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.topic import TopicInfo

NOW = 1_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

octets = st.none() | st.binary(max_size=40)
rows = st.tuples(
    octets,
    octets,
    st.none() | st.lists(st.tuples(st.text("aé", max_size=3), octets), max_size=2),
    st.none() | st.integers(0, 2),
    st.none() | st.integers(0, 2 * NOW),
).filter(lambda row: row[0] is not None or row[1] is not None)


def table_of(found: list[tuple], pieces: int) -> pa.Table:  # type: ignore[type-arg]
    """The rows in a slice of a larger table, cut into pieces."""
    filler = (b"other", b"other", [("other", b"other")], 1, 7)
    every = [filler, *found, filler]
    columns = list(zip(*every, strict=True))
    whole = pa.table(
        {
            "key": pa.array(columns[0], pa.large_binary()),
            "value": pa.array(columns[1], pa.binary()),
            "headers": pa.array(
                [None if h is None else [{"key": k, "value": v} for k, v in h] for h in columns[2]], HEADERS
            ),
            "partition": pa.array(columns[3], pa.int64()),
            "timestamp": pa.array(columns[4], pa.timestamp("ms", "UTC")),
        }
    ).slice(1, len(found))
    cuts = [len(found) * n // pieces for n in range(pieces + 1)]
    return pa.concat_tables([whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)])


@given(st.lists(rows, min_size=1, max_size=50), st.integers(1, 3))
def test_a_table_becomes_its_rows(found: list[tuple], pieces: int) -> None:  # type: ignore[type-arg]
    """Also a slice of a larger one, in chunks; sizes and partitions are those of `send`."""
    batch = column_batch(table_of(found, pieces), NOW)
    batch.route(3, 1)
    records = batch.records()

    assert list(zip(records.keys, records.values, strict=True)) == [row[:2] for row in found]
    assert records.headers == [row[2] or None for row in found]
    assert records.timestamps == [NOW if row[4] is None else row[4] for row in found]
    assert batch.sizes.tolist() == [record_size(*row[:3]) for row in found]
    for row, partition in zip(found, records.partitions, strict=True):
        if row[3] is not None:
            assert partition == row[3]
        elif row[0] is not None:
            assert partition == partition_for_key(row[0], 3)
        else:
            assert 0 <= partition < 3
    assert batch.counts() == {p: records.partitions.count(p) for p in set(records.partitions)}


settings = st.sampled_from(
    [{}, {"max.message.bytes": "110"}, {"cleanup.policy": "compact"}, {"message.timestamp.after.max.ms": "900000"}]
)


@given(st.lists(rows, min_size=1, max_size=30), settings)
def test_columns_are_refused_exactly_when_records_are(found: list[tuple], configs: dict[str, str]) -> None:  # type: ignore[type-arg]
    """By the same error, in the same words."""
    batch = column_batch(table_of(found, 1), NOW)
    batch.partitions = np.zeros(len(found), np.int32)
    info = TopicInfo(
        name=TopicName("t"), topic_id=TopicId("i"), location="t", num_partitions=1, configs=configs, created_ms=0
    )
    config = TopicConfig.from_properties(configs)

    def refusal_of(check: object) -> str:
        try:
            check(info, config, NOW)  # type: ignore[operator]
        except KafkaError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    by_columns = refusal_of(ColumnPayload(batch, None).check)

    assert by_columns == refusal_of(lambda *given: check_batch(batch.records(), *given))
