"""A root says which format it has; a client that does not know it writes nothing there."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.delta.actions import log_name, version_of
from kafkalike.delta.commit_file import lines_of
from kafkalike.delta.layout import CLUSTER_METADATA, ROOT_FORMAT
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.fork import restore_as
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.repair import repair_tables
from kafkalike.maintenance.verify.verify import known_topics, verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.storage.port import Storage
from tests.tools.records import batch, everything, open_log

Opener = Callable[[], Cluster]


def metadata_of(cluster: Cluster) -> Storage:
    assert isinstance(cluster, Cluster)
    return cluster.store.at(CLUSTER_METADATA)


def first_actions(files: Storage) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.read(log_name(0)).splitlines()]


def newer(cluster: Cluster, said: str) -> None:
    """What a newer release does to a root: one commit that raises its format."""
    files = metadata_of(cluster)
    found = next(action["metaData"] for action in first_actions(files) if "metaData" in action)
    found["configuration"][ROOT_FORMAT] = said
    version = max(v for e in files.list("_delta_log") if (v := version_of(e.name)) is not None) + 1
    assert files.put_if_absent(log_name(version), lines_of({"operation": "UPGRADE"}, [{"metaData": found}]))


def files_of(cluster: Cluster) -> set[str]:
    """All that is written below the root, but for what the trial of an object store leaves for a moment."""
    assert isinstance(cluster, Cluster)
    found: set[str] = set()
    # Not through the client, which is refused: a table with replicas is asked for by what the metadata say.
    for store in cluster.places():
        logs = (f"{folder}/{e.name}" for folder in store.folders() for e in store.at(folder).list("_delta_log"))
        files = (e.name for e in store.list(deep=True) if not e.name.startswith("__probe/"))
        found |= {f"{store.uri}/{name}" for name in (*logs, *files)}
    return found


def test_a_new_root_says_its_format(open_tables: Opener) -> None:
    cluster = open_tables()
    cluster.create_topic("t", 1, {})

    found = next(action["metaData"] for action in first_actions(metadata_of(cluster)) if "metaData" in action)

    assert isinstance(cluster, Cluster)
    assert found["configuration"][ROOT_FORMAT] == ("1" if len(cluster.places()) == 1 else "2")


def test_a_root_that_says_nothing_has_format_1(open_tables: Opener) -> None:
    """Releases before this one made it so."""
    cluster = open_tables()
    cluster.create_topic("t", 1, {})
    open_log(cluster).append(batch("v"))
    files = metadata_of(cluster)
    info, *actions = first_actions(files)
    for action in actions:
        action.get("metaData", {}).get("configuration", {}).pop(ROOT_FORMAT, None)
    files.replace(log_name(0), lines_of(info["commitInfo"], actions))
    assert ROOT_FORMAT.encode() not in files.read(log_name(0))

    again = open_tables()
    open_log(again).append(batch("w"))
    again.create_topic("u", 1, {})

    assert [value for _, value in everything(open_log(open_tables()))[0]] == ["v", "w"]


def acts(cluster: Cluster) -> dict[str, Callable[[], object]]:
    """What clients do, each with a client of its own."""
    row = GroupRow(seq=2, kind=OFFSET, group_id="g", topic="t", partition=0, offset=1, time_ms=1)
    assert isinstance(cluster, Cluster)
    place: Any = cluster

    def send() -> None:
        with suppress_close(KafkaProducer(bootstrap_servers=place)) as producer:
            producer.send("t", b"v").get(10)

    def poll() -> None:
        with suppress_close(KafkaConsumer("t", bootstrap_servers=place, group_id="g")) as consumer:
            consumer.poll(1000)

    def commit() -> None:
        cluster.groups.transact(lambda _: [row])

    def reset() -> None:
        with KafkaAdminClient(bootstrap_servers=place) as admin:
            admin.reset_group_offsets("g", {TopicPartition("t", 0): 0})

    return {
        "send": send,
        "poll": poll,
        "commit": commit,
        "reset": reset,
        "create": lambda: cluster.create_topic("u", 1, {}),
        "delete": lambda: cluster.delete_topic("t"),
        "append": lambda: open_log(cluster).append(batch("v")),
        "change": lambda: cluster.add_partitions("t", 2),
        "maintain": lambda: maintain(cluster, clock=SYSTEM_CLOCK),
        "restore": lambda: restore_as(cluster, "t", 1, "u", "run"),
        "verify": lambda: known_topics(cluster),
        "repair": lambda: repair_tables(cluster, lambda _: True, control=True, execute=True, say=lambda _: None),
        "fence": cluster.groups.fence,
        "compact": lambda: cluster.groups.compact(lambda rows: rows),
    }


class suppress_close:  # noqa: N801 - used as a statement
    """A client whose close may fail for the same reason."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> Any:
        return self._client

    def __exit__(self, *_: object) -> None:
        with suppress(UnsupportedVersionError):
            self._client.close(**({"autocommit": False} if isinstance(self._client, KafkaConsumer) else {}))


ACTS = [
    *("send", "poll", "commit", "reset", "create", "delete", "append", "change"),
    *("maintain", "restore", "verify", "repair", "fence", "compact"),
]


@pytest.mark.parametrize("act", ACTS)
def test_a_newer_format_is_refused_by_name_before_anything_is_written(open_tables: Opener, act: str) -> None:
    cluster = open_tables()
    cluster.create_topic("t", 1, {})
    open_log(cluster).append(batch("v"))
    newer(cluster, "3")
    before = files_of(cluster)

    with pytest.raises(UnsupportedVersionError, match=rf"{cluster.root} has format 3 .*knows formats up to 2"):
        acts(open_tables())[act]()

    assert files_of(cluster) == before


@pytest.mark.parametrize("act", ["append", "create", "maintain"])
def test_a_client_that_is_at_work_is_refused_from_its_next_look_on(open_tables: Opener, act: str) -> None:
    """Each time, and not only the first."""
    cluster = open_tables()
    cluster.create_topic("t", 1, {})
    open_log(cluster).append(batch("v"))
    log = open_log(cluster)
    newer(open_tables(), "3")
    before = files_of(cluster)

    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="has format 3"):
            log.append(batch("w")) if act == "append" else acts(cluster)[act]()

    assert files_of(cluster) == before


@pytest.mark.parametrize("said", ["0", "-1", "1.0", "", "one"])
def test_what_is_no_format_is_damage_that_verify_finds(open_tables: Opener, said: str) -> None:
    cluster = open_tables()
    cluster.create_topic("t", 1, {})
    newer(cluster, said)

    with pytest.raises(LogCorruptError, match="is damaged: its format"):
        open_tables().topics()
    found = [f.kind for f in verify(cluster, known_topics(cluster)).findings if "is damaged: its format" in f.message]
    assert "table" in found


@pytest.mark.slow
def test_a_checkpoint_keeps_it(open_tables: Opener) -> None:
    cluster = open_tables()
    cluster.create_topic("t", 1, {})
    newer_at = 60
    for number in range(newer_at):
        cluster.edit_configs("t", lambda _, n=number: {"retention.ms": str(1000 + n)})  # type: ignore[misc]
    for number in range(newer_at):
        cluster.edit_configs("t", lambda _, n=number: {"retention.ms": str(2000 + n)})  # type: ignore[misc]
    assert isinstance(cluster, Cluster)
    cluster.settle()
    files = metadata_of(cluster)
    assert "_last_checkpoint" in {e.name for e in files.list("_delta_log")}
    newer(cluster, "3")

    with pytest.raises(UnsupportedVersionError, match="has format 3"):
        open_tables().topics()
