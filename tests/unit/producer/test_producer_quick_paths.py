"""The quick paths of `KafkaProducer.send` and `RecordAccumulator.add` do what the paths that they stand for do."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.model.topic import TopicInfo
from kafkalike.producer import KafkaProducer
from kafkalike.producer.record_accumulator import RecordAccumulator

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("retire"), st.just(0)),
    ),
    max_size=40,
)


def traced(steps: list[tuple[str, int]], info: TopicInfo, *, quick: bool) -> list[Any]:
    """What each step returns, and what is in the accumulator after it. A gate makes each `add` the slow one."""
    clock = ManualClock()
    accumulator = RecordAccumulator(
        limit=10_000,
        linger=60,
        batch_size=50,
        max_block_ms=0,
        clock=clock,
        gate=None if quick else lambda: None,
    )
    queue, found = accumulator.queue(info), []
    batches_in_order: list[Any] = []
    for number, (step, size) in enumerate(steps):
        result: Any = None
        if step == "add":
            added = accumulator.add(queue, (0, None, b"%d" % number, number, None), size)
            if added is None:
                queue = accumulator.queue(info)
            else:
                # The batch by its number, as the two have objects of their own.
                if added[0] not in batches_in_order:
                    batches_in_order.append(added[0])
                result = batches_in_order.index(added[0]), added[1]
        elif step == "take" and queue.batches and queue.batches[0].due:
            taken = accumulator.take()
            assert taken is not None
            result = list(taken[1].fields)
            accumulator.release(taken[1])
        elif step == "retire":
            result = [list(batch.fields) for batch in accumulator.retire(queue)]
        batches = [(batch.size, batch.due, list(batch.fields)) for batch in queue.batches]
        found.append((result, accumulator.used, queue.gone, batches))
    return found


@example([("add", 30), ("add", 30), ("add", 5), ("take", 0), ("add", 7)])
@example([("add", 60), ("add", 5), ("retire", 0), ("add", 7)])
@given(STEPS)
def test_quick_add_leaves_what_the_slow_one_leaves(steps: list[tuple[str, int]]) -> None:
    """Each batch, row number, size and the bytes in use, after any sequence of sends, appends and deletions."""
    info = MemoryCluster(clock=ManualClock()).create_topic("orders", 1, {})

    assert traced(steps, info, quick=True) == traced(steps, info, quick=False)


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.binary(max_size=5),
        st.none() | st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.binary(max_size=3)), max_size=2),
        st.integers(0, 10**12),
    ),
    min_size=1,
    max_size=20,
)


def written(records: list[Any], *, quick: bool) -> list[Any]:
    """What a producer wrote, and what the futures say; without the bulk rule each `send` is the slow one."""
    cluster = MemoryCluster()
    cluster.create_topic("orders", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer._in_bulk = quick
        futures = [
            producer.send("orders", value, key=key, headers=headers, timestamp_ms=time)
            for key, value, headers, time in records
        ]
        metadata = [future.get(30) for future in futures]
    chunk = cluster.log("orders").reader(0, 0).read(1 << 30)
    assert chunk is not None
    columns = chunk.columns()
    rows = zip(
        columns.offsets,
        columns.keys,
        columns.values,
        columns.timestamps,
        columns.headers or [[]] * len(records),
        strict=True,
    )
    return [[tuple(row) for row in rows], metadata]


@given(RECORDS)
def test_quick_send_writes_what_the_slow_one_writes(records: list[Any]) -> None:
    """Keys, values, headers, timestamps, offsets and the metadata of the futures."""
    quick, slow = written(records, quick=True), written(records, quick=False)

    assert quick == slow
    assert [row[0] for row in quick[0]] == list(range(len(records)))
    assert [row[1:4] for row in quick[0]] == [(key, value, time) for key, value, _, time in records]
