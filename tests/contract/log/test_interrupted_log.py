"""A1, A2: Ctrl-C at any line of a refresh, a load, an append or a commit; what the client knows must stay right.

`test_interrupts.py` tries a few lines of all operations.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from deltalake import DeltaTable

from kafkalike.connect import connect, open_cluster
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.structs import TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.effort import examples
from tests.tools.records import all_records, batch, make_topic, open_log

# A file that a Ctrl-C leaves open is closed by the collector, which pytest takes for a leak.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

STATE = (
    "kafkalike/delta/",
    "kafkalike/log/",
    "kafkalike/maintenance/",
    "kafkalike/model/",
    "kafkalike/replication/",
    "kafkalike/storage/",
)
"""Where lines are counted: all code that keeps what a client knows of the tables."""

STEP = examples(1, 7)
"""Of so many lines of the code, one is interrupted: those whose number it divides."""


class Interrupts:
    """Ctrl-C before each line that some files run, one line each time; `make test` tries each third."""

    def __init__(self) -> None:
        self.done: set[tuple[str, int]] = set()
        self.fired = True
        """Whether the last action was interrupted; False when no line is left."""

    def __iter__(self) -> Iterator[int]:
        """Count the rounds until an action has run to its end."""
        for number in count():
            if not self.fired:
                return
            yield number

    def during(self, action: Callable[[], object]) -> None:
        """Do it until the first line that was not interrupted before."""
        self.fired = False
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            action()
        except KeyboardInterrupt:
            assert self.fired
        finally:
            sys.settrace(before)

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self._on_line if any(part in frame.f_code.co_filename for part in STATE) else None

    def _on_line(self, frame: FrameType, event: str, _arg: object) -> Any:
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and frame.f_lineno % STEP == 0 and not self.fired and place not in self.done:
            self.done.add(place)
            self.fired = True
            raise KeyboardInterrupt
        return self._on_line


def commit_offset(cluster: Cluster, offset: int) -> None:
    """Commit an offset of partition 0 of `t` for the group `g`, from outside the group."""

    def plan(state: GroupsState) -> list[GroupRow]:
        return [
            GroupRow(seq=state.seq + 1, kind=OFFSET, group_id="g", topic="t", partition=0, offset=offset, time_ms=1)
        ]

    cluster.groups.transact(plan)


def committed(cluster: Cluster) -> int:
    """The offset that the group has in a client's view."""
    return cluster.groups.refresh().groups["g"].offsets[TopicPartition("t", 0)].position.offset


@pytest.fixture
def cluster(root: str) -> Cluster:
    """A cluster with a topic of three records."""
    make_topic(root, (0, "a"), (0, "b"), (1, "c"))
    return open_cluster(root)


@pytest.mark.slow
def test_an_interrupted_refresh_of_the_metadata_overlooks_no_news(root: str, cluster: Cluster) -> None:
    """Whichever line of it Ctrl-C meets, the next refresh knows what a fresh client knows."""
    other = open_cluster(root)
    cluster.topics()
    interrupts = Interrupts()
    for line in interrupts:
        other.set_configs("t", {"retention.ms": str(1000 + line)})

        interrupts.during(cluster.topics)

        assert cluster.topics() == other.topics()


@pytest.mark.slow
def test_an_interrupted_refresh_of_the_groups_overlooks_no_commit(root: str, cluster: Cluster) -> None:
    """A committed offset of another client must not be lost for the rest of this client's life."""
    other = open_cluster(root)
    commit_offset(other, 0)
    cluster.groups.refresh()
    interrupts = Interrupts()
    for line in interrupts:
        commit_offset(other, line)

        interrupts.during(cluster.groups.refresh)

        assert committed(cluster) == line


@pytest.mark.slow
def test_an_interrupted_commit_is_there_for_all_or_for_none(root: str, cluster: Cluster) -> None:
    """And no row is written with the number of another one."""
    other = open_cluster(root)
    commit_offset(other, 0)
    interrupts = Interrupts()
    for line in interrupts:
        commit_offset(other, 2 * line)

        interrupts.during(partial(commit_offset, cluster, 2 * line + 1))

        seen = committed(cluster)
        assert seen == committed(other)
        assert seen in {2 * line, 2 * line + 1}
    numbers = [row.seq for row in open_cluster(root).groups.rows]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.slow
def test_an_interrupted_append_is_in_the_log_once_or_not_at_all(root: str) -> None:
    """And the same log goes on at the true log end."""
    log = make_topic(root, partitions=1)
    other = open_log(connect(root))
    end = 0
    interrupts = Interrupts()
    for line in interrupts:
        interrupts.during(partial(log.append, batch((0, f"i{line}"))))

        other.refresh()
        landed = other.log_end(0) - end
        assert landed in {0, 1}
        end += landed
        assert log.append(batch((0, f"after {line}"))).ranges == {0: range(end, end + 1)}
        end += 1
    values = [value for _, value in all_records(root)[0]]
    assert len(values) == len(set(values)) == end


def cleaned_up_to_now(root: str, topic: str) -> None:
    """Make a checkpoint of a topic's table and remove the commits up to it, as cleaning up the log does."""
    DeltaTable(f"{root}/{topic}").create_checkpoint()
    for file in Path(root, topic, "_delta_log").glob("*.json"):
        file.unlink()


@pytest.mark.slow
def test_after_an_interrupted_load_no_offset_is_given_out_twice(root: str, tmp_path: Path) -> None:
    """The table's log has moved on past what the client knows, so that it loads the table anew, and is interrupted."""
    make_topic(root, (0, "first"), partitions=1, topic="moved")
    table, before, after = Path(root, "moved"), tmp_path / "before", tmp_path / "after"
    shutil.copytree(table, before)
    open_log(connect(root), "moved").append(batch((0, "a"), (0, "b")))
    cleaned_up_to_now(root, "moved")
    # A client that has loaded half of the table would not notice by a newest version that is gone.
    end = open_log(connect(root), "moved").append(batch((0, "c"))).ranges[0].stop
    shutil.copytree(table, after)

    def becomes(what: Path) -> None:
        shutil.rmtree(table)
        shutil.copytree(what, table)

    interrupts = Interrupts()
    for _ in interrupts:
        becomes(before)
        log = open_log(connect(root), "moved")
        becomes(after)

        interrupts.during(log.ready_to_append)

        assert log.append(batch((0, "next"))).ranges == {0: range(end, end + 1)}


def test_a_client_that_lost_a_topic_from_its_memory_does_not_remove_the_table(root: str, cluster: Cluster) -> None:
    """Nothing goes from disk on the word of what a client remembers: the metadata are read anew."""
    cluster.topics()
    cluster.metadata._rows._state = ClusterState(cluster.metadata.state.seq)
    before = all_records(root)

    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", b"more", partition=1)

    assert all_records(root) == {**before, 1: [*before[1], (1, "more")]}


def test_rows_are_never_written_under_a_number_that_is_taken(root: str, cluster: Cluster) -> None:
    """Whatever has happened to a client's memory: it finds the true state, or refuses."""
    for offset in range(3):
        commit_offset(cluster, offset)
    cluster.groups._rows._state = replace(cluster.groups.state, seq=1)

    commit_offset(cluster, 3)

    rows = open_cluster(root).groups.rows
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert committed(open_cluster(root)) == 3


def test_a_plan_that_numbers_its_rows_wrongly_is_refused(root: str, cluster: Cluster) -> None:
    """It would hide rows that others have acknowledged."""
    commit_offset(cluster, 1)
    row = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", partition=0, offset=2, time_ms=1)

    with pytest.raises(KafkaError, match="number of row 1 is taken"):
        cluster.groups.transact(lambda _state: [row])

    assert committed(open_cluster(root)) == 1


def test_a_live_topics_table_in_the_deleted_folder_is_not_removed(root: str, cluster: Cluster) -> None:
    """However it came there: maintenance looks into the metadata, keeps it and names it."""
    info = cluster.topic("t")
    before = all_records(root)
    aside = Path(root, "__deleted", info.topic_id)
    aside.parent.mkdir()
    Path(root, info.location).rename(aside)

    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK, works=["control"])

    assert any(info.topic_id in problem and "'t'" in problem for problem in report.problems)
    aside.rename(Path(root, info.location))
    assert all_records(root) == before
