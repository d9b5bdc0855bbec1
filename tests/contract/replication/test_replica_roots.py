"""The courses of replication over real tables in folders: roots go, come back, and hold something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import application, newest_configuration
from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import Configuration, NoReplicaLeftError, Replica
from tests.tools.replicated import Brokers, in_threads


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path, [1, 2, 3])


def test_a_version_is_the_same_everywhere_and_delta_reads_it_anywhere(brokers: Brokers) -> None:
    writer = brokers.client()

    versions = [writer.append(word) for word in ("a", "b")]

    assert versions == [2, 3]
    assert brokers.files(1) == brokers.files(2) == brokers.files(3)
    assert [brokers.words(n) for n in (1, 2, 3)] == [["a", "b"]] * 3


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_writers_go_on_without_a_root_and_it_comes_back(brokers: Brokers, gone: int) -> None:
    """Whichever it is: the head, one in the middle, the leader, whose predecessor follows it."""
    writer = brokers.client()
    writer.append("a")
    brokers.take_away(gone)

    writer.append("b")

    registered = brokers.controller.look()
    assert [r.broker for r in registered.chain] == [n for n in (1, 2, 3) if n != gone]
    brokers.give_back(gone)
    assert brokers.words(gone) == ["a"]
    brokers.client().bring_back(gone)
    brokers.client().append("c")
    assert brokers.files(1) == brokers.files(2) == brokers.files(3)
    assert brokers.words(gone) == ["a", "b", "c"]
    assert len(brokers.controller.look().in_sync) == 3


def test_two_of_three_roots_may_be_lost_for_good(brokers: Brokers) -> None:
    writer = brokers.client()
    for word in "ab":
        writer.append(word)
    brokers.take_away(3)
    writer.append("c")
    brokers.take_away(1)

    brokers.client().append("d")

    assert brokers.words(2) == ["a", "b", "c", "d"]
    brokers.take_away(2)
    with pytest.raises(NoReplicaLeftError):
        brokers.client().append("e")


@pytest.mark.slow
def test_a_former_head_with_a_version_of_its_own_comes_back(brokers: Brokers) -> None:
    """That version was never acknowledged: a checkpoint of the others goes over it."""
    writer = brokers.client()
    writer.append("a")
    brokers.take_away(1)
    writer.append("b")
    brokers.give_back(1)
    own = writer.version("only here")
    assert brokers.store_of(Replica(1)).put_if_absent(log_name(3), own.data)

    brokers.client().bring_back(1)
    brokers.client().append("c")

    assert [brokers.words(n) for n in (1, 2, 3)] == [["a", "b", "c"]] * 3
    for name, content in brokers.files(1).items():
        assert content == (own.data if name == log_name(3) else brokers.files(2)[name])
    log = LogFiles.listed(brokers.store_of(Replica(1)))
    assert 3 in log.left_over
    assert 3 not in log.commits


def test_an_empty_folder_in_the_place_of_a_root_is_not_believed(brokers: Brokers) -> None:
    writer = brokers.client()
    writer.append("a")
    brokers.take_away(3)
    (brokers.folder / "3" / "t" / "_delta_log").mkdir(parents=True)

    writer.append("b")

    assert [r.broker for r in brokers.controller.look().chain] == [1, 2]
    brokers.client().bring_back(3)
    assert brokers.words(3) == ["a", "b"]


def test_a_leader_is_moved_and_the_log_goes_on(brokers: Brokers) -> None:
    writer = brokers.client()
    writer.append("a")

    brokers.client().move_leader(1)
    writer.append("b")

    assert [r.broker for r in brokers.controller.look().chain] == [2, 3, 1]
    assert [brokers.words(n) for n in (1, 2, 3)] == [["a", "b"]] * 3


def test_a_replica_comes_back_though_the_log_was_cleaned_up(brokers: Brokers) -> None:
    """By the checkpoint, and the data files that are live in it."""
    writer = brokers.client()
    writer.append("a")
    brokers.take_away(2)
    for word in "bcd":
        writer.append(word)
    for replica in brokers.controller.look().chain:
        assert writer.view is not None
        writer.roots.carry_out(isr_changes.cleaning(replica, writer.view, 1))
        log = LogFiles.listed(brokers.store_of(replica))
        assert (*log.commits, *log.left_over) == (writer.view.end - 1, writer.view.end)
    brokers.give_back(2)

    brokers.client().bring_back(2)
    brokers.client().append("e")

    assert [brokers.words(n) for n in (1, 2, 3)] == [list("abcde")] * 3
    assert brokers.client().roots.carry_out(protocol.opening({}, repair=False))[1] is not None


@pytest.mark.slow
def test_writers_side_by_side_lose_and_double_nothing_while_a_root_goes_and_comes(brokers: Brokers) -> None:
    done: list[str] = []

    def write(name: str) -> None:
        writer = brokers.client(lag_ms=20)
        for n in range(8):
            writer.append(f"{name}{n}")
            done.append(f"{name}{n}")

    def disturb() -> None:
        for gone in (3, 1):
            brokers.take_away(gone)
            brokers.client(lag_ms=20).append(f"without {gone}")
            done.append(f"without {gone}")
            brokers.give_back(gone)
            brokers.client(lag_ms=20).bring_back(gone)

    in_threads([lambda: write("a"), lambda: write("b"), disturb])
    brokers.client().bring_back(1)
    brokers.client().bring_back(3)
    brokers.client().append("last")

    assert [brokers.words(n) for n in (1, 2, 3)] == [sorted([*done, "last"])] * 3


def test_a_configuration_is_a_delta_transaction() -> None:
    """So it survives in checkpoints."""
    older, newer = Configuration(4, (Replica(1), Replica(12, 3))), Configuration(5, (Replica(2),))

    assert application(older) == "kafkalike.replicas:1,12.3"
    assert newest_configuration({application(older): 4, "other": 9}) == older
    assert newest_configuration({application(older): 4, application(newer): 5}) == newer
    assert newest_configuration({"other": 9}) is None
