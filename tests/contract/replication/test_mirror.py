"""Mirrors: read-only copies of topics at the same offsets, and what happens to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.cluster_mirror import Mirror, describe, promote
from kafkalike.admin.testing import MemoryCluster
from kafkalike.cli import main
from kafkalike.cli.mirror_command import HEADS
from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.layout import MIRRORS
from kafkalike.delta.log_files import LogFiles
from kafkalike.errors import MirrorError, MirrorTopicError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.replication.mirrors.mirror_sync import MirrorSync
from kafkalike.replication.mirrors.promotion import promoting
from tests.tools.clusters import on_disk, on_three_disks
from tests.tools.consumer import read_to_end
from tests.tools.findings import errors_of
from tests.tools.forked import killed
from tests.tools.mirror_world import MirrorWorld
from tests.tools.records import batch
from tests.tools.transactional import values
from tests.tools.upkeep import AT_ONCE, EAGER, ShiftedClock, pairs_of

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def source(tmp_path: Path) -> Cluster:
    """A cluster with a topic of two partitions."""
    cluster = on_disk(tmp_path / "source")
    cluster.create_topic("t", 2, AT_ONCE)
    fill(cluster, "a", "b")
    return cluster


@pytest.fixture
def target(root_or_roots: str) -> Cluster:
    """An empty one: on a disk, on several, and in object stores."""
    return connect(root_or_roots, access="spark")


def fill(cluster: Cluster, *given: str, topic: str = "t") -> None:
    """An append for each value."""
    for value in given:
        cluster.log(topic).append(batch((0, value), at_ms=NOW))


def mirror(source: Cluster, target: Cluster, topics: str = ".*") -> Any:
    """One pass of a process that knows nothing of those before."""
    return Mirror(on_disk(source.root), target, topics).run()


def test_a_copy_has_the_same_versions_offsets_times_and_id(source: Cluster, target: Cluster) -> None:
    """Byte by byte, so that checkpoints of streams and committed offsets mean the same there."""
    passed = mirror(source, target)

    theirs, mine = source.files_of(source.topic("t")), target.files_of(target.topic("t"))
    assert passed.sound
    assert [mine.read(log_name(v)) for v in range(3)] == [theirs.read(log_name(v)) for v in range(3)]
    assert values(target, "t") == [b"a", b"b"]
    assert target.topic("t").topic_id == source.topic("t").topic_id
    assert target.topic("t").configs == source.topic("t").configs


def test_what_comes_later_comes_with_the_next_pass_and_nothing_is_copied_twice(
    source: Cluster, target: Cluster
) -> None:
    """Data files of the first pass are not asked for again."""
    mirror(source, target)
    fill(source, "c")
    source.add_partitions("t", 3)

    passed = mirror(source, target)

    assert values(target, "t") == [b"a", b"b", b"c"]
    assert target.topic("t").num_partitions == 3
    assert passed.topics["t"].bytes == source.log("t").segments(0)[-1].size_bytes


WRITES: dict[str, Callable[[Cluster], object]] = {
    "append": lambda cluster: cluster.log("t").append(batch((0, "x"), at_ms=NOW)),
    "partitions": lambda cluster: cluster.add_partitions("t", 5),
    "settings": lambda cluster: cluster.set_configs("t", {}),
    "log start": lambda cluster: cluster.move_log_start("t", {0: 1}, "delete_records", "r"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_mirror_is_read_only_by_name(source: Cluster, target: Cluster, write: Callable[[Cluster], object]) -> None:
    """Until it is promoted."""
    mirror(source, target)

    with pytest.raises(MirrorTopicError, match="read-only mirror of") as refused:
        write(target)

    assert (refused.value.topic, refused.value.source) == ("t", source.root)
    assert not refused.value.retriable


def test_producers_are_told_by_name_also_in_a_transaction(source: Cluster, target: Cluster) -> None:
    """A transaction refuses the records when they are sent: what is decided must come in."""
    mirror(source, target)
    with KafkaProducer(bootstrap_servers=target) as producer, pytest.raises(MirrorTopicError):
        producer.send("t", b"x").get(10)
    with KafkaProducer(bootstrap_servers=target, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"x")
        with pytest.raises(MirrorTopicError):
            future.get(10)
        producer.abort_transaction()

    assert values(target, "t") == [b"a", b"b"]


def test_a_promoted_mirror_goes_on_at_the_next_offset_and_its_source_has_no_say(
    source: Cluster, target: Cluster
) -> None:
    """A mirror that was on its way says that the topic is none."""
    mirror(source, target)
    fill(source, "lost")

    assert promote(target, "t") == {"t": 2}
    fill(target, "own")

    assert values(target, "t") == [b"a", b"b", b"own"]
    assert "is not a mirror" in mirror(source, target).topics["t"].problem
    assert values(target, "t") == [b"a", b"b", b"own"]


@pytest.mark.parametrize("in_memory", ["source", "target"])
def test_a_mirror_of_or_in_a_memory_cluster_has_the_records(in_memory: str, tmp_path: Path) -> None:
    roots: dict[str, Any] = {"source": str(tmp_path / "source"), "target": str(tmp_path / "target")}
    roots[in_memory] = MemoryCluster()
    with KafkaProducer(bootstrap_servers=roots["source"]) as producer:
        producer.send("t", b"1").get(timeout=10)

    Mirror(roots["source"], roots["target"]).run()

    assert promote(roots["target"], "t") == {"t": 1}
    assert values(connect(roots["target"]), "t") == [b"1"]


def test_promote_takes_a_pattern_for_whole_names(source: Cluster, target: Cluster) -> None:
    """A topic whose name begins or ends with the pattern stays a mirror."""
    for name in ("t2", "at"):
        source.create_topic(name, 1, {})
    mirror(source, target)

    assert promote(target, "t") == {"t": 2}

    assert sorted(name for name, info in target.topics().items() if info.mirror is not None) == ["at", "t2"]
    assert sorted(promote(target, "t2|a.*")) == ["at", "t2"]


@pytest.mark.slow
def test_committed_offsets_come_along_and_a_group_goes_on_where_it_was(source: Cluster, target: Cluster) -> None:
    """Without a translation of offsets."""
    with KafkaConsumer(bootstrap_servers=source, group_id="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(1, "here", -1)})
    passed = mirror(source, target)
    promote(target, ["t"])

    with KafkaConsumer("t", bootstrap_servers=target, group_id="g") as consumer:
        found = [record.value for record in read_to_end(consumer)]

    assert passed.offsets == 1
    assert found == [b"b"]


def test_a_group_that_is_at_work_at_the_target_keeps_its_offsets(source: Cluster, target: Cluster) -> None:
    """Its own commit since the mirror began stays, and is said."""
    mirror(source, target)
    commit(target, 2)
    commit(source, 1)

    passed = mirror(source, target)

    known = target.groups.refresh().group("g").offsets[TopicPartition("t", 0)]
    assert known.position.offset == 2
    assert passed.held == ["g"]


def commit(cluster: Cluster, offset: int) -> None:
    """A position of group g."""
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(offset, "", -1)}
    ids = {"t": str(cluster.topic("t").topic_id)}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(Membership(group_id="g"), offsets, ids)


def test_offsets_that_the_source_takes_back_are_taken_back(source: Cluster, target: Cluster) -> None:
    """An administrator has reset the group."""
    commit(source, 2)
    mirror(source, target)
    commit(source, 0)

    mirror(source, target)

    assert target.groups.refresh().group("g").offsets[TopicPartition("t", 0)].position.offset == 0


@pytest.mark.slow
def test_retention_and_compaction_come_along_and_files_go_at_the_target_too(tmp_path: Path) -> None:
    """Maintenance at the target changes nothing but to remove the files that have left the table."""
    source, target = on_disk(tmp_path / "a"), on_disk(tmp_path / "b")
    source.create_topic("c", 1, EAGER)
    for at, value in enumerate(["1", "2", "3", "4"]):
        source.log("c").append(batch((0, value), key=b"k", at_ms=NOW + at))
    mirror(source, target)
    maintain(source, ["c"], clock=ShiftedClock())
    source.move_log_start("c", {0: 2}, "delete_records", "r")
    passed = mirror(source, target)
    assert passed.sound, passed

    report = maintain(target, ["c"], clock=ShiftedClock())

    assert not report.failed
    assert pairs_of(target.log("c")) == pairs_of(source.log("c")) == [(2, "k", "3"), (3, "k", "4")]
    assert target.log("c").version == source.log("c").version
    live = {segment.path for segment in target.log("c").table_segments(0)}
    assert {e.name for e in target.files_of(target.topic("c")).list(deep=True) if e.name.endswith(".parquet")} == live
    assert target.topic("c").why_gone(0, 0).startswith("log start moved to 2 by delete_records, run r")
    assert errors_of(target.root) == []


def test_a_source_that_was_cleaned_up_past_its_mirror_is_taken_up_at_a_checkpoint(
    source: Cluster, target: Cluster
) -> None:
    """A reader that follows the mirror meanwhile goes on."""
    mirror(source, target)
    with KafkaConsumer("t", bootstrap_servers=target, auto_offset_reset="earliest", group_id=None) as consumer:
        first = [r.value for r in take(consumer, 2)]
        fill(source, "c", "d")
        world_clean(source)

        passed = mirror(source, target)
        fill(source, "e")
        mirror(source, target)

        assert passed.topics["t"].restarted
        assert first + [r.value for r in take(consumer, 3)] == [b"a", b"b", b"c", b"d", b"e"]
    assert values(on_disk(target.root) if "://" not in target.root else target, "t") == [b"a", b"b", b"c", b"d", b"e"]


def take(consumer: KafkaConsumer, number: int) -> list[Any]:
    """So many records."""
    found: list[Any] = []
    while len(found) < number:
        found += [record for records in consumer.poll(500).values() for record in records]
    return found


def world_clean(cluster: Cluster) -> None:
    """As after a day: the log begins at a checkpoint."""
    MirrorWorld.clean(cluster, "t")


def test_a_long_log_is_taken_up_at_a_checkpoint_by_a_new_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads it version by version yet."""
    monkeypatch.setattr("kafkalike.model.mirror.FIRST_AT_ONCE", 3)
    source, target = on_disk(tmp_path / "a"), on_disk(tmp_path / "b")
    source.create_topic("t", 1, {})
    fill(source, *"abcdef")

    passed = mirror(source, target)

    assert passed.topics["t"].restarted
    assert values(target, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert LogFiles.listed(target.files_of(target.topic("t"))).commits == (0, 1, 6)


# --- what is wrong ------------------------------------------------------------------------------


def test_a_topic_that_was_created_again_is_said(source: Cluster, target: Cluster) -> None:
    """Deleting the mirror lets the next pass begin anew."""
    mirror(source, target)
    source.delete_topic("t")
    assert "was deleted at" in mirror(source, target).topics["t"].problem
    source.create_topic("t", 1, {})
    fill(source, "new")

    assert "deleted and created again" in mirror(source, target).topics["t"].problem
    assert values(target, "t") == [b"a", b"b"]
    target.delete_topic("t")
    assert mirror(source, target).sound
    assert values(target, "t") == [b"new"]


def test_a_topic_of_the_targets_own_is_left_alone(source: Cluster, target: Cluster) -> None:
    """It has the name of one at the source."""
    target.create_topic("t", 1, {})

    assert mirror(source, target).topics["t"].problem == f"topic 't' exists at {target.root}, and is not a mirror"


def test_a_damaged_version_is_not_copied_and_the_other_topics_go_on(tmp_path: Path) -> None:
    """The mirror stays at the last good version."""
    source, target = on_disk(tmp_path / "a"), on_disk(tmp_path / "b")
    for name in ("t", "u"):
        source.create_topic(name, 1, {})
        fill(source, "a", topic=name)
    mirror(source, target)
    for name in ("t", "u"):
        fill(source, "b", topic=name)
    path = tmp_path / "a" / "t" / log_name(2)
    path.write_bytes(path.read_bytes().replace(b'"add"', b'"adD"'))

    passed = mirror(source, target)

    assert "does not match its checksum" in passed.topics["t"].problem
    assert (values(target, "t"), values(target, "u")) == ([b"a"], [b"a", b"b"])


@pytest.mark.parametrize("harm", ["gone", "cut off"])
def test_a_damaged_data_file_is_not_copied(source: Cluster, target: Cluster, harm: str) -> None:
    """The mirror stays at the version before; nobody reads a version with a hole."""
    mirror(source, target)
    fill(source, "c")
    path = Path(source.root, "t", source.log("t").segments(0)[-1].path)
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10])

    problem = mirror(source, target).topics["t"].problem

    assert "is missing" in problem if harm == "gone" else "is damaged" in problem
    assert values(target, "t") == [b"a", b"b"]


def test_a_mirror_that_somebody_wrote_to_is_said_and_can_only_be_promoted_by_force(
    source: Cluster, target: Cluster
) -> None:
    """A foreign writer knows nothing of mirrors."""
    mirror(source, target)
    files = target.files_of(target.topic("t"))
    files.put_if_absent(log_name(3), files.read(log_name(2)).replace(b'"timestamp"', b'"timestamp" '))
    fill(source, "c")

    problem = mirror(source, target).topics["t"].problem

    assert "version 3 of the mirror's table is not that of" in problem
    assert promote(target, "t") == {"t": 2}


@pytest.mark.slow
def test_a_source_with_fewer_versions_than_its_mirror_is_said(source: Cluster, target: Cluster) -> None:
    """It was restored from a backup, perhaps."""
    mirror(source, target)
    Path(source.root, "t", log_name(2)).unlink()

    assert "is not that of" in mirror(source, target).topics["t"].problem
    assert values(target, "t") == [b"a", b"b"]


def test_one_cluster_is_no_mirror_of_itself(source: Cluster) -> None:
    with pytest.raises(MirrorError, match="the same cluster"):
        mirror(source, source)


def test_what_is_no_mirror_is_not_promoted(source: Cluster) -> None:
    with pytest.raises(MirrorError, match="topic 't' is not a mirror"):
        promote(source, ["t"])


def test_a_topic_that_came_back_by_a_mirror_of_its_mirror_has_the_records_of_both(tmp_path: Path) -> None:
    """Failover and failback: the ids are the same, and so are offsets."""
    first, second = on_disk(tmp_path / "a"), on_disk(tmp_path / "b")
    first.create_topic("t", 1, {})
    fill(first, "a")
    mirror(first, second)
    promote(second, "t")
    fill(second, "b")
    first.delete_topic("t")

    assert mirror(second, first).sound
    promote(first, "t")
    fill(first, "c")

    assert values(first, "t") == [b"a", b"b", b"c"]
    maintain(first, clock=SYSTEM_CLOCK)
    assert values(on_disk(first.root), "t") == [b"a", b"b", b"c"]
    assert errors_of(first.root) == []


# --- two of everything, and kills ---------------------------------------------------------------


def test_a_pass_that_another_one_has_overtaken_decides_nothing(source: Cluster, target: Cluster) -> None:
    """It had read what it wanted to bring before the other one decided."""
    mirror(source, target)
    fill(source, "c")
    late = steps_of(source, target)
    until(late, "manifest")
    mirror(source, target)

    ended = rest(late)

    assert ended.overtaken
    assert values(target, "t") == [b"a", b"b", b"c"]
    assert not [e for e in target.store.at("__mirrors").list() if not e.name.endswith(".seen")]


def test_what_a_killed_mirror_has_decided_comes_before_what_another_one_brings(
    source: Cluster, target: Cluster
) -> None:
    """The other one had looked for decided passes before that one was."""
    mirror(source, target)
    other = steps_of(source, target)
    until(other, "finished")
    fill(source, "c")
    until(steps_of(source, target), "decided")
    fill(source, "d")

    assert rest(other).sound
    assert values(target, "t") == [b"a", b"b", b"c", b"d"]


def test_a_pass_is_not_decided_once_a_promotion_has_begun(source: Cluster, target: Cluster) -> None:
    """Nor is anything of it brought."""
    mirror(source, target)
    fill(source, "c")
    late = steps_of(source, target)
    until(late, "manifest")
    promote(target, "t")

    assert rest(late).overtaken
    fill(target, "own")
    assert values(target, "t") == [b"a", b"b", b"own"]


def test_a_pass_is_not_decided_while_a_promotion_is_under_way(source: Cluster, target: Cluster) -> None:
    """It has looked for decided passes already."""
    mirror(source, target)
    fill(source, "c")
    late = steps_of(source, target)
    until(late, "manifest")
    promotion = promoting(target, ["t"])
    until(promotion, "promoting")

    assert rest(late).overtaken
    assert rest(promotion) == {"t": 2}
    assert values(target, "t") == [b"a", b"b"]


def test_a_promotion_brings_what_was_decided_without_the_source(source: Cluster, target: Cluster) -> None:
    """The mirror was killed and the source is gone."""
    mirror(source, target)
    fill(source, "c")
    until(steps_of(source, target), "decided")
    Path(source.root).rename(f"{source.root}-gone")

    assert promote(target, "t") == {"t": 3}
    assert values(target, "t") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_decided_pass_whose_file_is_lost_is_said_and_only_force_promotes_without_it(
    source: Cluster, target: Cluster, harm: str
) -> None:
    """What a promotion says it has, it has; and one lost file does not keep a target from being used for ever."""
    source.create_topic("other", 1, {})
    mirror(source, target)
    fill(source, "c")
    until(steps_of(source, target), "decided")
    mirrors = target.mirror_root.at(MIRRORS)
    (name,) = [entry.name for entry in mirrors.list() if entry.name.endswith(".pass")]
    content = mirrors.read(name)
    mirrors.remove(name)
    if harm == "damaged":
        mirrors.replace(name, content[:-9])
    fill(source, "late", topic="other")

    passed = mirror(source, connect(target.root, access="spark"))

    assert "a decided pass cannot be applied to this mirror" in passed.topics["t"].problem
    assert passed.topics["other"].problem == ""
    assert values(target, "other") == [b"late"]
    with pytest.raises(MirrorError, match="--force takes it as it is"):
        promote(target, "t")
    assert promote(target, "t", force=True) == {"t": 2}
    fill(target, "own")
    assert values(target, "t") == [b"a", b"b", b"own"]


def steps_of(source: Cluster, target: Cluster) -> Any:
    """A pass of another process, act by act."""
    return MirrorSync(on_disk(source.root), target, lambda _: True, lambda _: True).steps()


def until(steps: Any, word: str) -> None:
    """Go on until an act has been done."""
    while next(steps) != word:
        pass


def rest(steps: Any) -> Any:
    """Go on to the end."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


POINTS = [
    "mirror.before_create",
    "mirror.before_file",
    "mirror.before_manifest",
    "mirror.before_decision",
    "mirror.after_decision",
    "mirror.before_version",
    "mirror.before_offsets",
    "mirror.before_removal",
    "commit.before",
    "commit.after",
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_mirror_that_is_killed_anywhere_is_gone_on_with(tmp_path: Path, point: str) -> None:
    """kill -9 in a process of its own, at the first and the second visit; then a promotion of what is there."""
    source, target = on_disk(tmp_path / "a"), on_disk(tmp_path / "b")
    source.create_topic("t", 1, {})
    fill(source, "a", "b")
    commit(source, 1)
    for nth in (1, 2):
        killed(lambda: mirror(source, target), f"{point}@{nth}", may_end=True)

    assert mirror(source, on_disk(target.root)).sound

    assert values(on_disk(target.root), "t") == [b"a", b"b"]
    assert errors_of(target.root) == []
    killed(lambda: promote(on_disk(target.root), "t"), "mirror.before_seal")
    killed(lambda: promote(on_disk(target.root), "t"), "mirror.before_promoted")
    promote(on_disk(target.root), "t")
    fill(on_disk(target.root), "c")
    assert values(on_disk(target.root), "t") == [b"a", b"b", b"c"]


# --- people -------------------------------------------------------------------------------------


def test_a_mirror_knows_how_far_behind_it_is(source: Cluster, target: Cluster) -> None:
    """In versions, bytes and seconds, when its source is asked."""
    mirror(source, target)
    fill(source, "c", "d")

    (found,) = describe(target, source=on_disk(source.root))
    (alone,) = describe(target)

    size = sum(segment.size_bytes for segment in source.log("t").segments(0)[-2:])
    assert (found.version, found.source_version, found.lag_versions, found.lag_bytes) == (2, 4, 2, size)
    assert found.lag_seconds is not None
    assert found.lag_seconds > 0
    assert found.seen_ms is not None
    assert (alone.lag_versions, alone.lag_bytes, alone.lag_seconds) == (None, None, None)
    mirror(source, target)
    (even,) = describe(target, source=on_disk(source.root))
    assert (even.lag_versions, even.lag_bytes, even.lag_seconds) == (0, 0, 0.0)


def test_the_command_mirrors_describes_and_promotes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what went wrong with exit code 1."""
    source, there = on_disk(tmp_path / "a"), str(tmp_path / "b")
    source.create_topic("t", 1, {})
    fill(source, "a")

    assert main(["mirror", "--source", source.root, "--target", there, "--topic", "t"]) == 0
    assert main(["mirror", "--describe", "--source", source.root, "--target", there]) == 0
    assert main(["mirror", "promote", "--target", there, "--topic", "t"]) == 0
    assert main(["mirror", "--source", source.root, "--target", there]) == 1
    assert main(["mirror", "promote", "--target", there, "--all"]) == 1

    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("t: version -1 -> 1, ")
    assert lines[1].split() == list(HEADS)
    assert lines[2].split()[:7] == ["t", "following", "1", "1", "0", "0", "0.000"]
    assert lines[3] == "Promoted topic t at version 1 of its source."
    assert err.splitlines() == [
        f"Error: t: topic 't' exists at {there}, and is not a mirror",
        f"Error: {there} has no mirrors",
    ]


def test_large_files_are_copied_in_steps(source: Cluster, target: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, no more than a step is in memory."""
    monkeypatch.setattr("kafkalike.replication.mirrors.data_file_copy.WHOLE_BYTES", 100)
    monkeypatch.setattr("kafkalike.replication.mirrors.data_file_copy.STEP_BYTES", 1000)

    assert mirror(source, target).sound

    assert values(target, "t") == [b"a", b"b"]
    assert not [e for e in target.store.at("__mirrors").list() if e.name.endswith(".file")]


def test_an_admin_may_delete_a_mirror(source: Cluster, target: Cluster) -> None:
    """What is a copy may go."""
    mirror(source, target)

    KafkaAdminClient(bootstrap_servers=target).delete_topics(["t"])

    assert "t" not in target.topics()


@pytest.mark.slow
def test_a_cluster_of_several_roots_is_mirrored_to_one_of_one_root(tmp_path: Path) -> None:
    """While one of its roots is away, too; and back into one of several roots."""
    source, target = on_three_disks(tmp_path / "a", **{"replica.lag.time.max.ms": "1"}), on_disk(tmp_path / "b")
    source.create_topic("t", 1, {})
    fill(source, "a")
    assert Mirror(source, target).run().sound
    (tmp_path / "a" / "3").rename(tmp_path / "a" / "away")
    fill(source, "b")

    passed = Mirror(source, target).run()

    assert passed.sound, passed
    assert values(target, "t") == [b"a", b"b"]
    promote(target, "t")
    fill(target, "c")
    assert values(target, "t") == [b"a", b"b", b"c"]
    again = on_three_disks(tmp_path / "c")
    assert Mirror(target, again).run().sound
    promote(again, "t")
    fill(again, "d")
    assert values(again, "t") == [b"a", b"b", b"c", b"d"]
