"""A copy of a root is a root: offsets, groups, transactions and names of writes go along (docs/operations.md)."""

import shutil
from pathlib import Path

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, NewTopic
from kafkalike.connect import connect
from tests.tools.cli import call
from tests.tools.consumer import read_to_end


def read(root: str) -> list[bytes]:
    """What a group reads on, and commits."""
    with KafkaConsumer("t", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        return [record.value for record in read_to_end(consumer)]


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


def copy_roots(source: Path, target: Path) -> None:
    """Put a copy of each of three roots in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


@pytest.mark.slow
def test_copies_of_all_roots_restore_the_cluster_at_their_places(tmp_path: Path) -> None:
    """Records and committed offsets are those of the backup; the next record follows them at every replica."""
    live, backup = tmp_path / "live", tmp_path / "backup"
    roots = ",".join(f"{live}/{name}" for name in "abc")
    with KafkaAdminClient(bootstrap_servers=roots) as admin:
        admin.create_topics([NewTopic("t", 1, 3)])
    with KafkaProducer(bootstrap_servers=roots) as producer:
        producer.send("t", b"one")
    assert read(roots) == [b"one"]
    copy_roots(live, backup)
    with KafkaProducer(bootstrap_servers=roots) as producer:
        producer.send("t", b"lost")

    copy_roots(backup, live)
    with KafkaProducer(bootstrap_servers=roots) as producer:
        assert producer.send("t", b"two").get(10).offset == 1

    assert read(roots) == [b"two"]
    checked = call(connect(roots), "verify", "--replicas")
    assert (checked.code, "0 errors, 0 warnings" in checked.out) == (0, True)
