"""What a foreign Delta writer does to a topic's table: what a reader, the next append and `verify` say of it.

The rows of "Foreign acts on a topic's table" in docs/guarantees.md that have no test of their own elsewhere.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.delta.log_files import DURATIONS, LOG_STAYS, duration_ms
from kafkalike.errors import (
    CorruptRecordError,
    DataLossError,
    KafkaError,
    LogCorruptError,
    UnsupportedVersionError,
)
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.parquet import open_parquet
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of, kinds_of
from tests.tools.records import NOW_MS, all_records, batch, open_log
from tests.tools.upkeep import AT_ONCE, EAGER, keyed, topic, upkeep

pytestmark = pytest.mark.usefixtures("foreign_writes")

FILES = ((0, 2), (2, 5), (5, 10))
"""Offsets of the topic's data files."""

END = 10

COLUMNS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def table(root: str) -> DeltaTable:
    return DeltaTable(f"{root}/t")


def rows(*offsets: int, partition: int = 0) -> pa.Table:
    """Records as a foreign writer makes them."""
    row: dict[str, Any] = {"partition": partition, "timestamp": NOW_MS * 1000, "timestampType": 0, "value": b"foreign"}
    return pa.Table.from_pylist([{**row, "offset": offset} for offset in offsets], schema=COLUMNS)


def added(*offsets: int, partition: int = 0) -> Callable[[str], object]:
    return lambda root: write_deltalake(f"{root}/t", rows(*offsets, partition=partition), mode="append")


def overwritten(*offsets: int) -> Callable[[str], object]:
    return lambda root: write_deltalake(f"{root}/t", rows(*offsets), mode="overwrite")


def rewritten_with(change: Callable[[pa.Table], pa.Table]) -> Callable[[str], object]:
    """All records written anew, in other columns."""

    def act(root: str) -> None:
        whole = change(table(root).to_pyarrow_dataset().to_table())
        write_deltalake(f"{root}/t", whole, mode="overwrite", schema_mode="overwrite", partition_by=["partition"])

    return act


def text_values(found: pa.Table) -> pa.Table:
    at = found.schema.get_field_index("value")
    return found.set_column(at, "value", found["value"].cast(pa.string()))


def deleted(predicate: str) -> Callable[[str], object]:
    return lambda root: table(root).delete(predicate)


def merged_away(root: str) -> None:
    offsets = pa.table({"o": pa.array([4], pa.int64())})
    table(root).merge(offsets, "t.offset = s.o", "s", "t").when_matched_delete().execute()


def merged_in(root: str) -> None:
    table(root).merge(rows(10, 11), "t.offset = s.offset", "s", "t").when_not_matched_insert_all().execute()


def vacuumed(root: str) -> None:
    table(root).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def optimized_and_vacuumed(root: str) -> None:
    table(root).optimize.compact()
    vacuumed(root)


def with_property(name: str, value: str) -> Callable[[str], object]:
    return lambda root: table(root).alter.set_table_properties({name: value}, raise_if_not_exists=False)


def emptied_by(operation: str) -> Callable[[str], object]:
    """All files taken out by a commit that says it does so; the table keeps its id."""

    def act(root: str) -> None:
        old = table(root)
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": 1, "operation": operation}}]
        actions += [
            {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}
            for path in old.get_add_actions(flatten=True)["path"].to_pylist()
        ]
        content = "\n".join(map(json.dumps, actions))
        Path(root, "t", "_delta_log", f"{old.version() + 1:020}.json").write_text(content, encoding="utf-8")

    return act


@dataclass(frozen=True)
class Act:
    """What a foreign writer does, and what follows."""

    do: Callable[[str], object]
    read: range
    """Offsets that a consumer gets, from the beginning."""
    then: type[KafkaError] | None = None
    """What it gets after them."""
    append: int | type[KafkaError] = END
    """The offset of the next record, or why there is none."""
    verify: frozenset[str] = frozenset()
    """Kinds of what `verify` calls an error; nothing when empty."""


FOREIGN = frozenset({"foreign-commit"})
UNKNOWN_FEATURE = UnsupportedVersionError

ACTS = {
    "optimize, vacuum 0": Act(optimized_and_vacuumed, range(END)),
    "vacuum 0": Act(vacuumed, range(END)),
    "delete the first record": Act(deleted("offset = 0"), range(0), DataLossError, verify=frozenset({"gap"})),
    "delete the first file": Act(deleted("offset < 2"), range(0), DataLossError, verify=frozenset({"gap"})),
    "delete in the middle of a file": Act(
        deleted("offset = 3"), range(3), DataLossError, verify=frozenset({"hole-in-file"})
    ),
    "delete a file in the middle": Act(
        deleted("offset >= 2 AND offset < 5"), range(2), DataLossError, verify=frozenset({"gap"})
    ),
    "delete the last records": Act(deleted("offset >= 8"), range(8), DataLossError, verify=frozenset({"gap"})),
    "delete the last file": Act(deleted("offset >= 5"), range(5), DataLossError, verify=frozenset({"gap"})),
    "delete all": Act(lambda root: table(root).delete(), range(0), DataLossError, verify=frozenset({"gap"})),
    "update values": Act(lambda root: table(root).update(updates={"value": "key"}), range(END), verify=FOREIGN),
    "update offsets": Act(
        lambda root: table(root).update(updates={"offset": "offset + 100"}, predicate="offset >= 5"),
        range(5),
        DataLossError,
        append=110,
        verify=FOREIGN | {"gap"},
    ),
    "merge: delete": Act(merged_away, range(4), DataLossError, verify=FOREIGN | {"gap"}),
    "merge: insert": Act(merged_in, range(12), append=12, verify=FOREIGN),
    "append at the log end": Act(added(10, 11), range(12), append=12, verify=FOREIGN),
    "append of an offset that is there": Act(added(3), range(2), CorruptRecordError, verify=FOREIGN | {"overlap"}),
    "append of one offset twice": Act(
        added(10, 10), range(END), CorruptRecordError, append=11, verify=FOREIGN | {"duplicate-offset"}
    ),
    "append above the log end": Act(added(15), range(END), DataLossError, append=16, verify=FOREIGN | {"gap"}),
    "append below 0": Act(added(-5), range(END), verify=FOREIGN),
    "append to a partition that does not exist": Act(
        added(0, partition=7), range(END), verify=FOREIGN | {"unknown-partition"}
    ),
    "overwrite with two records": Act(overwritten(0, 1), range(2), DataLossError, verify=FOREIGN | {"gap"}),
    "overwrite with nothing": Act(overwritten(), range(0), DataLossError, verify=FOREIGN | {"gap"}),
    "overwrite with the same records": Act(rewritten_with(lambda found: found), range(END), verify=FOREIGN),
    "overwrite with values of another type": Act(
        rewritten_with(text_values), range(0), CorruptRecordError, verify=FOREIGN | {"schema"}
    ),
    "overwrite without a column": Act(
        rewritten_with(lambda found: found.drop_columns(["headers"])),
        range(0),
        CorruptRecordError,
        verify=FOREIGN | {"schema"},
    ),
    "restore": Act(
        lambda root: table(root).restore(2), range(5), DataLossError, append=LogCorruptError, verify=FOREIGN | {"gap"}
    ),
    **{
        operation: Act(emptied_by(operation), range(0), DataLossError, append=LogCorruptError, verify=FOREIGN | {"gap"})
        for operation in ("TRUNCATE", "CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT")
    },
    "forget transactions after a time": Act(
        with_property("delta.setTransactionRetentionDuration", "interval 1 days"),
        range(END),
        append=UnsupportedVersionError,
        verify=frozenset({"foreign-rule"}),
    ),
    "forbid to take anything out": Act(
        with_property("delta.appendOnly", "true"), range(END), verify=frozenset({"foreign-rule"})
    ),
    "create or replace": Act(
        lambda root: DeltaTable.create(f"{root}/t", table(root).schema(), mode="overwrite", partition_by=["partition"]),
        range(0),
        LogCorruptError,
        append=LogCorruptError,
        verify=frozenset({"table"}),
    ),
    "set a property of Delta": Act(with_property("delta.checkpointInterval", "1"), range(END)),
    "set a property of somebody's own": Act(with_property("owner", "me"), range(END)),
    "switch on the change data feed": Act(
        with_property("delta.enableChangeDataFeed", "true"),
        range(0),
        UNKNOWN_FEATURE,
        append=UNKNOWN_FEATURE,
        verify=frozenset({"table"}),
    ),
    "add a constraint": Act(
        lambda root: table(root).alter.add_constraint({"small": "offset < 1000"}),
        range(0),
        UNKNOWN_FEATURE,
        append=UNKNOWN_FEATURE,
        verify=frozenset({"table"}),
    ),
    "checkpoint": Act(lambda root: table(root).create_checkpoint(), range(END)),
    "clean up the log": Act(lambda root: table(root).cleanup_metadata(), range(END)),
}


@pytest.fixture
def log(root: str) -> TopicLog:
    """A topic of one partition in three files."""
    made = topic(root, "t", 1, {**AT_ONCE, "retention.ms": "-1"})
    for start, stop in FILES:
        made.append(batch(*(f"v{offset}" for offset in range(start, stop)), key=b"k"))
    return made


def polled(root: str, most: int) -> tuple[list[int], type[Exception] | None]:
    """Offsets that a consumer gets from the beginning, and the error that ends them."""
    found: list[int] = []
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        try:
            while len(found) <= most:
                got = consumer.poll(timeout_ms=50)
                if not got:
                    break
                found += [record.offset for records in got.values() for record in records]
        except KafkaError as error:
            return found, type(error)
    return found, None


def appended(opened: Callable[[], TopicLog]) -> int | type[Exception]:
    try:
        return opened().append(batch("next", key=b"k")).ranges[0].start
    except KafkaError as error:
        return type(error)


@pytest.mark.parametrize("name", sorted(ACTS))
def test_a_foreign_act_is_harmless_or_named(root: str, log: TopicLog, name: str) -> None:
    """By clients that come new, and by a writer that has the topic open."""
    act = ACTS[name]
    act.do(root)

    found, error = polled(root, END + 5)
    kinds = {line.split(": ")[1] for line in errors_of(root)}
    first = appended(lambda: open_log(connect(root)))
    second = appended(lambda: log)

    assert found == list(act.read)
    assert (error is None) if act.then is None else (error is not None and issubclass(error, act.then))
    assert first == act.append
    assert second == (act.append + 1 if isinstance(act.append, int) else act.append)
    assert act.verify <= kinds
    assert bool(kinds) == bool(act.verify)


LEAVE_RECORDS = {
    *("optimize, vacuum 0", "vacuum 0", "checkpoint", "clean up the log"),
    *("set a property of Delta", "set a property of somebody's own", "forbid to take anything out"),
    "forget transactions after a time",
}
"""Acts that change no record."""

CANNOT_BE_FOLLOWED = {"create or replace", "switch on the change data feed", "add a constraint"}
"""Acts that a client with the topic open meets as an error."""


@pytest.mark.parametrize("name", sorted(ACTS.keys() - CANNOT_BE_FOLLOWED))
def test_a_client_that_has_the_topic_open_warns_of_changed_records_once(
    root: str, log: TopicLog, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """By name, at its next look: who has read the records before can know."""
    before = table(root).version()

    ACTS[name].do(root)
    log.refresh()
    log.refresh()

    told = [text for text in caplog.messages if "foreign writer's" in text]
    if name in LEAVE_RECORDS:
        assert told == []
    else:
        (text,) = told
        assert text.startswith(f"topic t: table version {before + 1} is a foreign writer's (")
        assert ("removed" in text, "added" in text) != (False, False)


def test_an_update_is_named_with_its_files_and_partitions(
    root: str, log: TopicLog, caplog: pytest.LogCaptureFixture
) -> None:
    table(root).update(updates={"value": "key"}, predicate="offset < 5")

    log.append(batch("next", key=b"k"))

    (text,) = [text for text in caplog.messages if "foreign writer's" in text]
    assert "(UPDATE by delta-rs" in text
    assert "removed 2 files of partition 0 and added 1 file of partition 0" in text
    assert "may have changed or disappeared" in text


@pytest.mark.parametrize("predicate", ["offset = 3", "offset >= 8", "offset >= 0"])
def test_records_deleted_from_a_compacted_topic_are_a_loss_where_compaction_has_not_been(
    root: str, predicate: str
) -> None:
    """What compaction takes, its commit says; nothing else may take a record."""
    made = topic(root, "t", 1, {"cleanup.policy": "compact"})
    for start, stop in FILES:
        made.append(batch(*(f"v{offset}" for offset in range(start, stop)), key=b"k"))
    table(root).delete(predicate)

    with pytest.raises(DataLossError, match="missing"):
        all_records(root)
    assert errors_of(root) != []


def test_what_compaction_took_is_no_loss_and_what_was_deleted_above_it_is(root: str) -> None:
    """Also after the topic is no longer compacted."""
    made = topic(root, "t", 1, EAGER)
    for turn in range(4):
        made.append(keyed(("a", f"{turn}"), ("b", f"{turn}"), at_ms=NOW_MS + 10 * turn))
    upkeep(root)
    assert [offset for offset, _ in all_records(root)[0]] == [4, 5, 6, 7]

    table(root).delete("offset = 6")

    with pytest.raises(DataLossError, match=r"\[6, 7\)"):
        all_records(root)


def test_maintenance_takes_nothing_out_of_a_table_that_was_made_append_only(root: str) -> None:
    """Every Delta writer must respect that property; the run says so."""
    log = topic(root, "t", 1, {**AT_ONCE, "retention.ms": "1"})
    log.append(batch("old"))
    with_property("delta.appendOnly", "true")(root)

    report = maintain(on_disk(root), ["t"], works=["retention"], clock=SYSTEM_CLOCK)

    assert "delta.appendOnly=true" in str(report.topics[0])
    assert report.failed
    log.refresh()
    assert len(log.table_segments(0)) == 1
    assert log.append(batch("new")).ranges == {0: range(1, 2)}


@pytest.mark.parametrize("given", ["soon", "interval x days", "interval -1 days", "interval 1 fortnights", "interval"])
@pytest.mark.parametrize("name", sorted(DURATIONS))
def test_a_duration_that_is_none_is_deltas_default(name: str, given: str) -> None:
    """Anybody may set the properties of a table; nothing may go because of a slip."""
    assert duration_ms({name: given}, name) == DURATIONS[name]


@pytest.mark.parametrize(
    ("given", "hours"), [("interval 1 days", 24), ("INTERVAL 2 weeks", 336), ("interval 1 day 12 hours", 36)]
)
def test_a_duration_is_read_as_delta_writes_it(given: str, hours: int) -> None:
    """Units in the singular or the plural, several of them, in any case."""
    assert duration_ms({LOG_STAYS: given}, LOG_STAYS) == hours * 3_600_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DURATIONS))
def test_a_duration_that_is_none_takes_nothing_away(root: str, log: TopicLog, name: str) -> None:
    """Neither the writer's own clean-up of the log nor maintenance stumbles over it."""
    with_property(name, "soon")(root)
    cluster = connect(root)
    writer = open_log(cluster)
    for number in range(100):
        writer.append(batch(f"n{number}"))
    cluster.settle()
    versions = set(Path(root, "t", "_delta_log").glob("*.json"))

    assert log.clean_log()
    assert upkeep(root).problems == []

    assert versions <= set(Path(root, "t", "_delta_log").glob("*.json"))
    assert len(list(Path(root, "t", "_delta_log").glob("*.checkpoint.parquet"))) == 1
    assert errors_of(root) == []


def test_a_vacuum_of_0_hours_beside_an_append_loses_it_and_the_loss_is_named(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta warns of it: the file was written, and no commit named it yet."""
    plan = log._appending

    def slow(*given: Any) -> Any:
        made = plan(*given)
        vacuumed(root)
        return made

    monkeypatch.setattr(log, "_appending", slow)
    log.append(batch("gone"))

    with pytest.raises(CorruptRecordError, match="is missing"):
        all_records(root)
    assert "missing-file" in kinds_of(root)


def test_a_reader_goes_on_in_the_new_files_when_its_own_were_vacuumed(root: str, log: TopicLog) -> None:
    """It had begun to read the old ones."""
    reader = log.reader(0, 0)
    first = reader.read(1)
    optimized_and_vacuumed(root)
    log.refresh()
    found: list[int] = []
    while (chunk := reader.read(1)) is not None:
        found += chunk.columns().offsets

    assert first is not None
    assert first.columns().offsets + found == list(range(END))
    (segment,) = log.segments(0)
    assert open_parquet(log.files, segment.path).metadata.num_rows == END
