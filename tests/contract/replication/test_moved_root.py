"""A copy of a root is a root: offsets, groups, transactions and names of writes go along (docs/operations.md)."""

import shutil
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from tests.tools.cli import call


def read(root: str) -> list[bytes]:
    """What a group reads on, and commits."""
    with KafkaConsumer(
        "t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=500
    ) as consumer:
        return [record.value for record in consumer]


@pytest.mark.slow
def test_a_copied_root_goes_on_where_the_old_one_was(root: str, tmp_path: Path) -> None:
    """Whatever its path is; `verify` finds nothing, and a producer's transactional id is known there."""
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"one")
        producer.commit_transaction()
    assert read(root) == [b"one"]
    moved = str(tmp_path / "else" / "where")
    shutil.copytree(root, moved)
    shutil.rmtree(root)

    with KafkaProducer(bootstrap_servers=moved, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"two")
        producer.commit_transaction()

    assert read(moved) == [b"two"]
    assert connect(moved).log("t").log_end(0) == 2
    assert call(connect(moved), "verify").code == 0
    assert not Path(root).exists()
