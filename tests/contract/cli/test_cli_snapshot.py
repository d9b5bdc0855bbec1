"""`kafkalike snapshot`: one line of JSON that is the snapshot; what it cannot be of is refused by name."""

from collections.abc import Callable

import pytest

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.snapshots import Snapshot
from kafkalike.maintenance.topic_snapshots import snapshot
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata
from kafkalike.producer import KafkaProducer
from tests.tools.cli import call
from tests.tools.kinds import only_in_memory
from tests.tools.transactional import T0


def test_what_it_prints_is_the_snapshot(log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]) -> None:
    """With the offsets of groups; one that does not exist has none."""
    producer = producer_of()
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.commit_transaction()

    done = call(log_cluster, "snapshot", "--topic", "t", "--topic", "u", "--group", "g", "--group", "nobody")

    printed, taken = Snapshot.from_json(done.out), snapshot(["t", "u"], log_cluster, groups=["g", "nobody"])
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 1)
    assert (printed.topics, printed.seq, printed.offsets) == (taken.topics, taken.seq, taken.offsets)
    assert {name: dict(at.ends) for name, at in printed.topics.items()} == {"t": {0: 1, 1: 0}, "u": {0: 0}}
    assert [at.position.offset for at in printed.offsets["g"].values()] == [1]
    assert printed.offsets["nobody"] == {}


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--topic", "t", "--group", "g", "--at", "0"], 1, "as of a time has no groups"),
        (["--topic", "t", "--at", "99999999999999"], 1, "is in the future"),
        (["--topic", "t", "--at", "99999999999999999999"], 2, "is in the future"),
        (["--topic", "t", "--at", "soon"], 2, "ms since 1970"),
        (["--topic", "nowhere"], 1, "nowhere"),
        ([], 2, "--topic"),
    ],
)
@pytest.mark.usefixtures("producer_of")
def test_what_cannot_be_is_refused(log_cluster: Cluster, args: list[str], code: int, said: str) -> None:
    """In one line."""
    done = call(log_cluster, "snapshot", *args, clock=SYSTEM_CLOCK)

    assert (done.code, done.out) == (code, "")
    assert said in done.err
