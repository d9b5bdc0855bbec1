"""Undoing an append: its records go, as one table version; a transaction's go from all of its topics, or from none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition, undo
from kafkalike.admin.cluster_mirror import Mirror, promote
from kafkalike.errors import (
    IllegalArgumentError,
    KafkaTimeoutError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch, TxnId
from tests.tools.findings import errors_of
from tests.tools.forked import killed
from tests.tools.kinds import only_on_disk
from tests.tools.records import all_records, batch
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, keyed, open_cluster, pairs_of, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()


@pytest.fixture
def root(root_or_roots: str) -> str:
    """A new one on a disk, several, and in object stores."""
    return root_or_roots


@pytest.fixture
def log(root: str) -> TopicLog:
    """Three appends to two partitions."""
    log = topic(root, "t", 2, {**AT_ONCE, "retention.ms": "-1"})
    for turn in range(3):
        made = RecordBatch()
        for partition in (0, 1, 0):
            made.add(partition, b"k%d" % partition, b"%d" % turn, NOW + turn)
        log.append(made)
    return log


def ids(root: str, name: str = "t") -> list[str]:
    """Ids of the appends to a topic, oldest first."""
    return [one for event in topic_history(open_cluster(root), name) for one in event.appends]


def test_a_dry_run_says_what_would_go_and_who_has_read_it(root: str, log: TopicLog) -> None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 3)
        consumer.commit()
    version = log.version

    report = undo("t", ids(root)[1], root)

    log.refresh()
    assert log.version == version
    assert (report.executed, report.records, report.missing, report.versions) == (False, 3, 0, {})
    assert [(part.partition, part.records, part.segments) for part in report.parts] == [(0, 2, 1), (1, 1, 1)]
    assert [(g.group_id, g.partition, g.committed, g.read) for g in report.groups] == [("g", 0, 3, 1)]


def test_its_records_go_from_all_partitions_by_one_version_and_nothing_else(root: str, log: TopicLog) -> None:
    before = log.version

    report = undo("t", ids(root)[1], root, dry_run=False, reason="wrong file")
    again = undo("t", ids(root)[1], root, dry_run=False)

    assert report.versions == {"t": before + 1}
    assert (again.records, again.missing, again.versions) == (0, 3, {})
    assert all_records(root) == {0: [(0, "0"), (1, "0"), (4, "2"), (5, "2")], 1: [(0, "0"), (2, "2")]}
    assert errors_of(root) == []
    (event,) = [event for event in topic_history(open_cluster(root), "t") if event.kind == "undo"]
    assert event.what == f"partitions: [0, 1], records: 3, append: {report.append}, reason: wrong file"


def test_the_last_append_may_go_and_its_offsets_are_not_given_out_again(root: str, log: TopicLog) -> None:
    undo("t", ids(root)[2], root, dry_run=False)

    assert log.append(batch((0, "new"), at_ms=NOW)).ranges == {0: range(6, 7)}
    assert all_records(root)[0][-1] == (6, "new")
    assert errors_of(root) == []


def test_an_append_whose_file_was_merged_with_others_is_found_by_its_offsets(root: str, log: TopicLog) -> None:
    for number in range(2):
        log.append(batch((0, f"n{number}"), at_ms=NOW))
    upkeep(root)
    assert len(open_cluster(root).log("t").segments(0)) == 1

    report = undo("t", ids(root)[1], root, dry_run=False)

    assert report.records == 3
    assert [offset for offset, _ in all_records(root)[0]] == [0, 1, 4, 5, 6, 7]
    assert errors_of(root) == []


@pytest.mark.slow
def test_what_compaction_has_taken_is_said_and_the_rest_goes(root: str) -> None:
    log = topic(root, "c", 1, EAGER)
    log.append(keyed(("a", "0"), ("b", "1"), at_ms=NOW))
    for number, key in enumerate("acd"):
        log.append(keyed((key, str(number)), at_ms=NOW + 10 * (number + 1)))
    upkeep(root, "c")

    report = undo("c", ids(root, "c")[0], root, dry_run=False)

    assert (report.records, report.missing) == (1, 1)
    assert [key for _, key, _ in pairs_of(log)] == ["a", "c", "d"]


def test_what_is_below_the_log_start_is_gone_already(root: str, log: TopicLog) -> None:
    """All of it is a refusal, a part of it is said."""
    first, second, _ = ids(root)
    open_cluster(root).move_log_start("t", {0: 3, 1: 2}, "delete_records", "r")

    with pytest.raises(IllegalArgumentError, match="below the log start"):
        undo("t", first, root, dry_run=False)
    report = undo("t", second, root, dry_run=False)

    assert (report.records, report.below_start) == (1, 2)
    assert all_records(root) == {0: [(4, "2"), (5, "2")], 1: [(2, "2")]}


def test_a_rerun_of_the_write_that_was_undone_adds_nothing(root: str) -> None:
    """Its name stays known, so that a stream that goes on does not bring it back."""
    log = topic(root, "t", 1, {})
    log.append(batch("a", at_ms=NOW), txn=TxnId("job", 1))
    undo("t", ids(root)[0], root, dry_run=False)

    again = log.append(batch("a", at_ms=NOW), txn=TxnId("job", 1))

    assert again.duplicate
    assert all_records(root) == {0: []}


@pytest.fixture
def two(root: str) -> str:
    """The id of what a transaction has brought into `a`, and into `b` too, after an append of its own to each."""
    for name in ("a", "b"):
        topic(root, name, 1, {}).append(batch(f"{name}0", at_ms=NOW))
    transacted(root, ("a", "a1"), ("b", "b1"))
    return ids(root, "a")[1]


@pytest.mark.slow
def test_a_transaction_is_undone_in_all_of_its_topics_or_in_none(root: str, two: str) -> None:
    with pytest.raises(IllegalArgumentError, match="has written to b as well"):
        undo("a", two, root, dry_run=False)
    assert all_records(root, "a") == {0: [(0, "a0"), (1, "a1")]}

    report = undo(["a", "b"], two, root, dry_run=False)

    assert sorted(report.versions) == ["a", "b"]
    assert report.transaction is not None
    assert (all_records(root, "a"), all_records(root, "b")) == ({0: [(0, "a0")]}, {0: [(0, "b0")]})
    assert errors_of(root) == []


@pytest.mark.slow
@only_on_disk("root_or_roots")
def test_a_transaction_of_whose_topics_nobody_knows_any_more_is_refused(root: str, two: str) -> None:
    """The other topic's log was cleaned, and the row that decided it is gone too."""
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:
        producer.init_transactions()
    log = open_cluster(root).log("b")
    log.append(batch("b2", at_ms=NOW))
    DeltaTable(f"{root}/b").create_checkpoint()
    for file in Path(root, "b", "_delta_log").glob("*.json"):
        if int(file.stem) < DeltaTable(f"{root}/b").version():
            file.unlink()

    with pytest.raises(IllegalArgumentError, match="the history of b does not reach back so far"):
        undo("a", two, root, dry_run=False)


@pytest.mark.slow
@only_on_disk("root_or_roots")
def test_a_transaction_whose_producer_died_between_its_topics_is_undone_in_all_of_them(
    root: str,
) -> None:
    """It is decided, so it would come into the other one after its undoing."""
    for name in ("a", "b"):
        topic(root, name, 1, {}).append(batch(f"{name}0", at_ms=NOW))
    killed(lambda: transacted(root, ("a", "a1"), ("b", "b1")), "transaction.before_apply@2")
    (has,) = [name for name in ("a", "b") if len(ids(root, name)) == 2]
    append = ids(root, has)[1]

    with pytest.raises(KafkaTimeoutError, match="is being applied to"):
        undo(has, append, root)
    with pytest.raises(IllegalArgumentError, match="as well"):
        undo(has, append, root, dry_run=False)
    report = undo(["a", "b"], append, root, dry_run=False)

    assert report.records == 2
    assert (all_records(root, "a"), all_records(root, "b")) == ({0: [(0, "a0")]}, {0: [(0, "b0")]})


@pytest.mark.slow
def test_a_transaction_of_a_mirrors_source_is_not_taken_for_one_of_its_own_cluster(root: str, tmp_path: Path) -> None:
    """Both clusters count theirs from the beginning."""
    source = str(tmp_path / "source")
    topic(source, "t", 1, {})
    transacted(source, ("t", "theirs"))
    Mirror(open_cluster(source), open_cluster(root)).run()
    (theirs,) = ids(source)
    with pytest.raises(IllegalArgumentError, match="or was, a mirror: "):
        undo("t", theirs, root)
    promote(root, "t")
    transacted(root, ("t", "mine"))
    before = all_records(root)

    with pytest.raises(IllegalArgumentError, match="or was, a mirror: "):
        undo("t", theirs, root, dry_run=False)

    assert all_records(root) == before == {0: [(0, "theirs"), (1, "mine")]}
    assert undo("t", ids(root)[1], root, dry_run=False).records == 1
    assert all_records(root) == {0: [(0, "theirs")]}


def transacted(root: str, *sent: tuple[str, str]) -> None:
    """Send values to topics by one transaction."""
    with KafkaProducer(bootstrap_servers=root, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for name, value in sent:
            producer.send(name, value=value.encode())
        producer.commit_transaction()


def test_what_the_history_does_not_have_is_refused(root: str, log: TopicLog) -> None:
    """Nothing that is no append is undone, and maintenance is none."""
    for number in range(2):
        log.append(batch((0, f"n{number}"), at_ms=NOW))
    upkeep(root)
    merge = log.find_commit(lambda commit: commit.operation == "OPTIMIZE")
    log.refresh()
    assert merge is not None
    assert merge.append_id is not None

    for wrong in ("nothing", merge.append_id, ""):
        with pytest.raises(IllegalArgumentError, match="has no append"):
            undo("t", wrong, root, dry_run=False)
    with pytest.raises(UnknownTopicOrPartitionError):
        undo("u", ids(root)[0], root)
    with pytest.raises(IllegalArgumentError, match="at least one topic"):
        undo([], ids(root)[0], root)


@pytest.mark.usefixtures("foreign_writes")
@only_on_disk("root_or_roots")
def test_an_append_only_table_is_refused_by_name(root: str, log: TopicLog) -> None:
    DeltaTable(f"{root}/t").alter.set_table_properties({"delta.appendOnly": "true"})

    with pytest.raises(PolicyViolationError, match="appendOnly"):
        undo("t", ids(root)[0], root, dry_run=False)


def test_retention_and_merging_go_on_over_the_holes(root: str, log: TopicLog) -> None:
    undo("t", ids(root)[1], root, dry_run=False)
    for number in range(4):
        log.append(batch((0, f"n{number}"), at_ms=NOW))
    upkeep(root)
    open_cluster(root).set_configs("t", {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    upkeep(root)

    assert [offset for offset, _ in all_records(root)[0]] == [0, 1, 4, 5, 6, 7, 8, 9]
    assert errors_of(root) == []


@pytest.mark.parametrize("settings", [{}, {"fetch_min_bytes": 1000}], ids=["default", "fetch_min_bytes"])
@pytest.mark.parametrize("how", ["poll", "iterate", "arrow"])
def test_consumer_before_undone_records_at_the_log_end_moves_past_them(
    root: str, log: TopicLog, how: str, settings: dict[str, Any]
) -> None:
    """Its lag would never become 0 otherwise."""
    places = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 2}
    with KafkaConsumer(bootstrap_servers=root, group_id="g", consumer_timeout_ms=300, **settings) as consumer:
        consumer.assign(list(places))
        for tp, offset in places.items():
            consumer.seek(tp, offset)
        undo("t", ids(root)[2], root, dry_run=False)

        if how == "iterate":
            assert list(consumer) == []
        elif how == "arrow":
            assert consumer.poll_arrow(300) is None
        else:
            assert consumer.poll(300) == {}
        consumer.commit()

        assert {tp: consumer.position(tp) for tp in places} == {tp: consumer.end_offsets([tp])[tp] for tp in places}
        assert [consumer.committed(tp) for tp in places] == [6, 3]
        log.append(batch((0, "next"), at_ms=NOW))
        assert [r.offset for found in consumer.poll(5_000).values() for r in found] == [6]


def test_consumer_of_buffered_records_before_a_gap_hands_them_out_first(root: str, log: TopicLog) -> None:
    tp = TopicPartition("t", 0)
    with KafkaConsumer(bootstrap_servers=root, max_poll_records=1) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 2)
        undo("t", ids(root)[2], root, dry_run=False)

        found = [[r.offset for r in consumer.poll(300).get(tp, ())] for _ in range(3)]

        assert found == [[2], [3], []]
        assert consumer.position(tp) == 6
