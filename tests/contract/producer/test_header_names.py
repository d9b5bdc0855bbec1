"""A record whose header key is null or not UTF-8, as other engines write them, is named by its offset."""

import pyarrow as pa
import pytest

from kafkalike import KafkaConsumer
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError
from kafkalike.log.topic.chunk import HEADERS_TYPE
from kafkalike.log.topic.column_batch import column_batch
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.structs import TopicPartition
from tests.tools.records import NOW_MS, make_topic

P0 = TopicPartition("t", 0)
BAD = 700


@pytest.fixture(params=[b"\xff", None], ids=["not UTF-8", "null"])
def bad_root(root: str, request: pytest.FixtureRequest) -> str:
    """A topic of 1,000 records with headers, of which the one at `BAD` has no key that is text."""
    names = [b"fine"] * 1_000
    names[BAD] = request.param
    text = pa.Array.from_buffers(pa.string(), len(names), pa.array(names, pa.binary()).buffers())
    inner = pa.StructArray.from_arrays([text, pa.nulls(1_000, pa.binary())], fields=list(HEADERS_TYPE.value_type))
    batch = column_batch(pa.table({"value": [str(n) for n in range(1_000)]}), NOW_MS)
    batch.route(1, 0)
    columns = {name: batch.table.column(name) for name in batch.table.column_names}
    batch.table = pa.table(columns | {"headers": pa.ListArray.from_arrays(list(range(1_001)), inner)})
    make_topic(root, partitions=1).append(batch)
    return root


def consumer(root: str) -> KafkaConsumer:
    made = KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest", consumer_timeout_ms=0)
    made.assign([P0])
    return made


def test_poll_hands_out_what_lies_before_and_names_the_offset(bad_root: str) -> None:
    """Each time, until the consumer seeks past it."""
    with consumer(bad_root) as one:
        before = one.poll(1_000, max_records=2_000)[P0]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=r"t-0: the record at offset 700 .*seek to offset 701"):
                one.poll(1_000)
        assert one.position(P0) == BAD
        one.seek(P0, BAD + 1)
        after = one.poll(1_000, max_records=2_000)[P0]

    assert [record.offset for record in before] == list(range(BAD))
    assert [record.offset for record in after] == list(range(BAD + 1, 1_000))


def test_poll_arrow_names_the_offset_as_well(bad_root: str) -> None:
    with consumer(bad_root) as one:
        found = one.poll_arrow(1_000)
        with pytest.raises(CorruptRecordError, match="offset 700"):
            one.poll_arrow(1_000)

    assert found is not None
    assert found.num_rows == BAD


def test_verify_names_the_offset(bad_root: str) -> None:
    (found,) = verify(connect(bad_root), ["t"]).findings

    assert (found.kind, found.offsets) == ("header-key", range(BAD, BAD + 1))
