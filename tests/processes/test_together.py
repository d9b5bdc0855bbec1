"""A driver that writes into several topics is killed at each step: all of a batch is there, or nothing of it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalike import snapshot
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.structs import TopicPartition
from tests.processes.workers.together import TOPICS
from tests.tools.children import run
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.jobs import offsets_of, spread, write_rows
from tests.tools.records import all_records, make_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORKER = "tests.processes.workers.together"
BATCHES = 2

BEFORE = [
    "append.staged",
    "transaction.before_begin",
    "transaction.after_begin",
    "together.staged",
    "transaction.before_commit",
]
"""The batch is not decided."""
AFTER = [
    "transaction.after_commit",
    "transaction.before_apply",
    "append.before_files",
    "append.before_commit",
    "append.after_commit",
    "transaction.after_apply",
    "transaction.before_remove",
    "transaction.after_remove",
]
"""It is."""
SEVERAL = {"together.staged", *AFTER[1:6]}
"""Visited for each topic."""
REMOVING = {"transaction.before_remove", "transaction.after_remove"}
REMOVALS = 3
"""Visits to them until the second batch is decided: at the end of the first, and twice when the second begins."""
OFTEN = {
    ("together.staged", 2),
    ("transaction.after_commit", 2),
    ("append.before_commit", 2),
    ("append.after_commit", 4),
}
"""Tried in each run; the others in the soak."""
FAULTS = [
    pytest.param(place, nth, place in AFTER, marks=[] if (place, nth) in OFTEN else pytest.mark.soak)
    for place in BEFORE + AFTER
    for nth in ((1, 2, 3, 4, 5, 6) if place in SEVERAL else (1, 2, 3, 4) if place in REMOVING else (1, 2))
]


def values(batches: int, topic: str) -> list[str]:
    """What a topic has after so many batches."""
    return [f"{n}-{row}" for n in range(batches) for row in range(3 if topic != "c" else 2)]


def wanted(batches: int) -> dict[str, dict[int, list[tuple[int, str]]]]:
    return {topic: {0: list(enumerate(values(batches, topic)))} for topic in TOPICS}


def found(root: str) -> dict[str, dict[int, list[tuple[int, str]]]]:
    return {topic: all_records(root, topic) for topic in TOPICS if topic in connect(root).topics()}


def committed(cluster: Cluster) -> int:
    info = cluster.topic("in")
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK).committed("g", [TopicPartition("in", 0)], {"in": info.topic_id})
    return offsets[TopicPartition("in", 0)].offset if offsets else 0


def rerun(root: str, first: int = 0) -> None:
    """What Spark does after a restart: the last batch again, and then the others."""
    cluster = on_disk(root)
    for batch in range(first, BATCHES):
        write_rows(
            cluster,
            spread([f"{batch}-0", f"{batch}-1"], TOPICS),
            spread([f"{batch}-2"], TOPICS[:2]),
            name=("stream:q", batch),
            offsets=offsets_of("g", "in", batch + 1),
        )


@pytest.mark.parametrize(("place", "nth", "decided"), FAULTS)
def test_a_batch_for_three_topics_and_a_group_is_all_or_nothing_wherever_its_driver_is_killed(
    root: str, place: str, nth: int, *, decided: bool
) -> None:
    """And once, in order, after it was run again; a snapshot and the group's offset agree before that already."""
    make_topic(root, (0, "x"), (0, "y"), partitions=1, topic="in")
    for topic in TOPICS:
        make_topic(root, partitions=1, topic=topic)
    orders: dict[str, Any] = {"root": root, "first": 0, "last": BATCHES - 1}
    run(WORKER, orders, {"KAFKALIKE_FAULT": f"{place}:kill@{nth}"}, expected=-9)

    cluster = on_disk(root)
    done = committed(cluster)
    taken = snapshot(TOPICS, cluster, groups="g")

    assert {t: sum(taken.topics[t].ends.values()) for t in TOPICS} == {t: len(values(done, t)) for t in TOPICS}
    assert sum(at.position.offset for at in taken.offsets["g"].values()) == done
    # Taking it has brought what was decided into the topics.
    assert found(root) == wanted(done)
    visits = -(-nth // len(TOPICS)) if place in SEVERAL else -(-nth // REMOVALS) if place in REMOVING else nth
    assert done == (visits if decided else visits - 1)

    rerun(root, max(0, done - 1))

    assert found(root) == wanted(BATCHES)
    assert committed(on_disk(root)) == BATCHES
    assert errors_of(root) == []


def test_what_was_decided_comes_into_its_topics_without_its_driver(root: str) -> None:
    """By maintenance, which removes what was staged as well."""
    make_topic(root, (0, "x"), (0, "y"), partitions=1, topic="in")
    for topic in TOPICS:
        make_topic(root, partitions=1, topic=topic)
    run(
        WORKER, {"root": root, "first": 0, "last": 0}, {"KAFKALIKE_FAULT": "transaction.after_commit:kill"}, expected=-9
    )
    cluster = on_disk(root)
    assert found(root) == {topic: {0: []} for topic in TOPICS}

    assert cluster.transactions.maintain(Deadline(SYSTEM_CLOCK, 60_000)) == []

    assert found(root) == wanted(1)
    assert cluster.store.at("__transactions").list(deep=True) == []
    assert errors_of(root) == []
