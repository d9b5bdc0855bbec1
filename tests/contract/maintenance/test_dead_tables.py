"""What deletions and killed creations leave where no folder can be renamed: maintenance removes it, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.layout import DELETED
from kafkalike.errors import KafkaStorageError, TopicDeletedError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.cluster.topic_folders import UNDER_WAY_MS
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.works.vacuum import clear_dead_tables
from kafkalike.model.brokers import ReplicatedTable
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.names import TopicId, TopicName
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.port import Storage
from tests.tools.kinds import OBJECT_STORES
from tests.tools.object_servers import ObjectServer
from tests.tools.records import batch, everything, open_log
from tests.tools.scripted_store import ScriptedStore


class Ages:
    """The clock of a store, which a test moves."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ns(self) -> int:
        return (SYSTEM_CLOCK.now_ms() + self.ahead_ms) * 1_000_000


@pytest.fixture
def ages() -> Ages:
    return Ages()


@pytest.fixture
def store(ages: Ages) -> MemoryStorage:
    return MemoryStorage(now_ns=ages.now_ns)


@pytest.fixture
def cluster(store: MemoryStorage) -> Cluster:
    return Cluster(store)


def filled(cluster: Cluster, name: str, records: int = 3) -> str:
    """A topic with records; returns its folder."""
    info = cluster.create_topic(name, 2, {})
    log = open_log(cluster, name)
    for number in range(records):
        log.append(batch(str(number)))
    return info.location


def names_of(store: Storage) -> set[str]:
    """Folders of the root that hold anything but the control tables."""
    return {name for name in store.folders() if not name.startswith("__")}


@pytest.fixture(params=["memory", *OBJECT_STORES])
def opener(request: pytest.FixtureRequest, object_server: Callable[[str], ObjectServer]) -> Callable[[], Cluster]:
    """Opens the same root again and again."""
    if request.param == "memory":
        shared = MemoryStorage()
        return lambda: Cluster(shared)
    server = object_server(request.param)
    root = server.new_root()

    def opened() -> Cluster:
        found = connect(root, server.options)
        assert isinstance(found, Cluster)
        return found

    return opened


def test_the_files_of_a_deleted_topic_go_and_the_report_says_so(opener: Callable[[], Cluster]) -> None:
    """Those of each life of it, whatever has the name now; all other topics keep theirs."""
    cluster = opener()
    filled(cluster, "kept")
    for _ in range(3):
        filled(cluster, "t")
        cluster.delete_topic("t")
    last = filled(cluster, "t")
    before = names_of(cluster.store)

    report = maintain(opener(), clock=SYSTEM_CLOCK, works=["control"])

    assert len(before) == 5
    assert (report.cleared_folders, report.problems) == (3, [])
    assert names_of(cluster.store) == {"kept", last}
    assert [value for _, value in everything(open_log(opener(), "t"))[0]] == ["0", "1", "2"]
    assert maintain(opener(), clock=SYSTEM_CLOCK, works=["control"]).cleared_folders == 0


@pytest.mark.slow
def test_a_run_that_is_killed_is_finished_by_the_next(cluster: Cluster, store: MemoryStorage) -> None:
    """After each single file."""
    location = filled(cluster, "t", records=12)
    cluster.delete_topic("t")
    filled(cluster, "t")
    left = len(store.at(location).list(deep=True)) + len(store.at(location).list("_delta_log"))
    removed: list[str] = []

    class KilledError(Exception):
        pass

    for kills_at in range(left):

        class Killing(MemoryStorage):
            def remove(self, name: str, *, quietly: bool = False) -> None:
                super().remove(name, quietly=quietly)
                removed.append(name)
                raise KilledError

        killing = Killing()
        killing.__dict__.update(store.__dict__)
        try:
            clear_dead_tables(Cluster(killing))
        except KilledError:
            continue
        raise AssertionError(kills_at)

    assert len(removed) == left
    assert location not in store.folders()
    assert clear_dead_tables(Cluster(store)) == 0


def test_a_mark_goes_when_a_day_has_passed(cluster: Cluster, store: MemoryStorage, ages: Ages) -> None:
    """Until then a late writer may leave something."""
    filled(cluster, "t")
    cluster.delete_topic("t")
    clear_dead_tables(cluster)
    young = [entry.name for entry in store.list(DELETED)]

    ages.ahead_ms = UNDER_WAY_MS
    clear_dead_tables(cluster)

    assert len(young) == 1
    assert store.list(DELETED) == []


def test_a_deletion_that_was_killed_before_its_row_has_deleted_nothing(
    cluster: Cluster, store: MemoryStorage, ages: Ages
) -> None:
    location = filled(cluster, "t")
    store.replace(f"{DELETED}/{cluster.topic('t').topic_id}", location.encode())
    ages.ahead_ms = 2 * UNDER_WAY_MS

    assert clear_dead_tables(cluster) == 0

    assert len(everything(open_log(cluster, "t"))[0]) == 3
    assert store.list(DELETED) == []


def test_a_deletion_that_cannot_be_marked_is_none() -> None:
    store = ScriptedStore()
    cluster = Cluster(store)
    filled(cluster, "t")
    topic_id = cluster.topic("t").topic_id

    class Refusing(MemoryStorage):
        def replace(self, name: str, content: bytes) -> None:
            if name == f"{DELETED}/{topic_id}":
                raise OSError("no answer")
            super().replace(name, content)

    refusing = Refusing()
    refusing.__dict__.update({k: v for k, v in store.__dict__.items() if k in refusing.__dict__})

    with pytest.raises(KafkaStorageError, match="topic 't' was not deleted: no answer"):
        Cluster(refusing).delete_topic("t")

    assert len(everything(open_log(cluster, "t"))[0]) == 3


def test_a_killed_creation_goes_after_a_day_and_a_fence(
    cluster: Cluster, store: MemoryStorage, ages: Ages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creator that was stopped with the table in hand makes another one, which has the topic."""
    filled(cluster, "t")
    cluster.delete_topic("t")
    clear_dead_tables(cluster)
    late = Cluster(store)
    create = late._tables.create
    seen: list[tuple[int, int, Sequence[str]]] = []

    def stopped(name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
        made = create(name, location, placed, closed=closed)
        if not seen:
            young = clear_dead_tables(cluster)
            ages.ahead_ms = UNDER_WAY_MS + 1000
            seen.append((young, clear_dead_tables(cluster), store.folders()))
        return made

    monkeypatch.setattr(late._tables, "create", stopped)
    info = late.create_topic("t", 1, {})

    assert seen == [(0, 1, ["__cluster_metadata"])]
    open_log(cluster, "t").append(batch("v"))
    assert everything(open_log(cluster, "t"))[0] == [(0, "v")]
    assert names_of(store) == {info.location}


def test_a_late_writer_of_a_removed_table_is_told_so(cluster: Cluster, store: MemoryStorage, ages: Ages) -> None:
    """It was stopped between its look and its commit, for as long as the table took to go. It leaves nothing behind."""
    location = filled(cluster, "t")
    version = open_log(cluster, "t").version

    class Late(MemoryStorage):
        stopped = False

        def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
            if self._prefix + name == f"{location}/{log_name(version + 1)}" and not Late.stopped:
                Late.stopped = True
                cluster.delete_topic("t")
                assert clear_dead_tables(Cluster(store)) == 1
            return super().put_if_absent(name, content, durable=durable)

    late = Late()
    late.__dict__.update(store.__dict__)
    log = open_log(Cluster(late), "t")

    with pytest.raises(TopicDeletedError):
        log.append(batch("late"))

    assert Late.stopped
    assert store.at(location).list("_delta_log") == []
    ages.ahead_ms = UNDER_WAY_MS
    clear_dead_tables(cluster)
    assert location not in store.folders()


def test_old_files_of_late_writers_go_and_foreign_ones_stay(cluster: Cluster, store: MemoryStorage, ages: Ages) -> None:
    location = filled(cluster, "t")
    cluster.delete_topic("t")
    store.replace(f"{location}/notes.txt", b"somebody's")
    said: list[str] = []
    clear_dead_tables(cluster, said.append)
    store.replace(f"{location}/partition=0/part-late.parquet", b"late")
    store.replace(f"{location}/{log_name(9)}", b"late")

    young = clear_dead_tables(cluster, said.append)
    ages.ahead_ms = UNDER_WAY_MS
    old = clear_dead_tables(cluster, said.append)

    assert (young, old) == (0, 1)
    assert [name for name in store._disk.files if name.startswith(f"{location}/")] == [f"{location}/notes.txt"]
    assert said == [f"{location}: foreign files that stay: 1"] * 2


def test_a_storage_that_does_not_answer_is_no_missing_table(cluster: Cluster, store: MemoryStorage) -> None:
    """Nothing is removed on the word of an error."""
    location = filled(cluster, "t")
    cluster.delete_topic("t")

    class Silent(MemoryStorage):
        def read(self, name: str) -> bytes:
            if self._prefix.startswith(f"{location}/"):
                raise OSError("no answer")
            return super().read(name)

    silent = Silent()
    silent.__dict__.update(store.__dict__)
    before = set(store._disk.files)

    report = maintain(Cluster(silent), clock=SYSTEM_CLOCK, works=["control"])

    assert ["no answer" in problem for problem in report.problems] == [True]
    assert before <= set(store._disk.files)
