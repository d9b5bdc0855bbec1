"""Transactions seen and ended from outside: by the admin client, the command line, metrics and maintenance."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkalike.admin import AbortTransactionSpec, KafkaAdminClient, TransactionListing, TransactionState
from kafkalike.admin.group_lag import Lags
from kafkalike.admin.metrics.cluster_collector import ClusterCollector
from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidProducerEpochError,
    TransactionalIdNotFoundError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.runs.run_manifest import LAYOUT, RunManifest, StagedRun, dump_manifest
from kafkalike.log.topic.batch_payload import pack, partitions_in
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.log.transactions.transaction_files import FilesToStage
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.cli import Done, call
from tests.tools.kinds import only_in_memory
from tests.tools.records import batch
from tests.tools.transactional import T0, T1, U0, values

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@pytest.fixture
def admin(log_cluster: Cluster) -> KafkaAdminClient:
    """A client of the cluster."""
    return KafkaAdminClient(bootstrap_servers=log_cluster)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that begins now; a cluster's own goes on by itself."""
    return ManualClock(SYSTEM_CLOCK.now_ms() / 1000)


@pytest.fixture
def ids(log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]) -> dict[str, KafkaProducer]:
    """One transactional id in each state: `new`, `open`, `done`, `gone`."""
    del log_cluster
    made = {name: producer_of(transactional_id=name) for name in ("new", "open", "done", "gone")}
    for name, producer in made.items():
        producer.init_transactions()
        if name != "new":
            producer.begin_transaction()
            producer.send("t", name.encode(), partition=0).get(60)
    made["done"].send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    made["done"].commit_transaction()
    made["gone"].abort_transaction()
    return made


STATES = {
    "new": TransactionState.EMPTY,
    "open": TransactionState.ONGOING,
    "done": TransactionState.COMPLETE_COMMIT,
    "gone": TransactionState.COMPLETE_ABORT,
}


def listed(found: dict[int, list[TransactionListing]]) -> dict[str, TransactionState]:
    """States by id, of the one broker."""
    return {one.transactional_id: one.state for one in found.get(1, [])}


# --- list and describe -------------------------------------------------------------------------------


@pytest.mark.usefixtures("ids")
def test_ids_are_listed_with_the_state_of_their_last_transaction(admin: KafkaAdminClient) -> None:
    """Sorted by name, under the one broker; filters as kafka-python's."""
    found = admin.list_transactions()
    (opened,) = admin.list_transactions(state_filters=["Ongoing"])[1]

    assert [one.transactional_id for one in found[1]] == sorted(STATES)
    assert listed(found) == STATES
    assert listed(admin.list_transactions(state_filters=[TransactionState.EMPTY, "complete_commit"])) == {
        name: STATES[name] for name in ("new", "done")
    }
    assert admin.list_transactions(producer_id_filters=[opened.producer_id]) == {1: [opened]}
    assert listed(admin.list_transactions(transactional_id_pattern="n.*|done")).keys() == {"new", "done"}
    assert listed(admin.list_transactions(transactional_id_pattern="one")) == {}
    assert admin.list_transactions(broker_ids=[7]) == {}
    assert listed(admin.list_transactions(state_filters=["Dead", "PrepareAbort"])) == {}


@pytest.mark.usefixtures("ids")
def test_only_transactions_under_way_have_a_duration(log_cluster: Cluster, clock: ManualClock) -> None:
    """An open one is as old as its first record."""
    clock.sleep(10)
    admin = KafkaAdminClient(bootstrap_servers=log_cluster, clock=clock)

    assert listed(admin.list_transactions(duration_filter_ms=5_000)).keys() == {"open"}
    assert listed(admin.list_transactions(duration_filter_ms=100_000)) == {}
    assert listed(admin.list_transactions(duration_filter_ms=-1)) == STATES


@pytest.mark.parametrize("given", [{"state_filters": ["Fine"]}, {"transactional_id_pattern": "("}])
def test_filters_that_mean_nothing_are_refused(admin: KafkaAdminClient, given: dict[str, object]) -> None:
    with pytest.raises(IllegalArgumentError):
        admin.list_transactions(**given)  # type: ignore[arg-type]


def test_descriptions_are_kafka_pythons(admin: KafkaAdminClient, ids: dict[str, KafkaProducer]) -> None:
    """Partitions are those that a transaction still has to come into: of an open one those it wrote to."""
    before = admin.describe_transactions(["open", "done", "new"])
    ids["open"].commit_transaction()
    after = admin.describe_transactions(["open"])["open"]

    assert {name: found.state for name, found in before.items()} == {n: STATES[n] for n in ("open", "done", "new")}
    opened = before["open"]
    assert (opened.coordinator_id, opened.producer_epoch, opened.transaction_timeout_ms) == (1, 0, MINUTE_MS)
    assert opened.transaction_start_time_ms > 0
    assert opened.topic_partitions == {T0}
    assert (before["done"].transaction_start_time_ms, before["done"].topic_partitions) == (-1, set())
    assert (after.state, after.transaction_start_time_ms) == (TransactionState.COMPLETE_COMMIT, -1)
    assert after.producer_id == opened.producer_id
    assert opened._fields[:3] == ("coordinator_id", "state", "producer_id")


@pytest.mark.usefixtures("ids")
def test_an_id_that_is_not_known_is_named(admin: KafkaAdminClient) -> None:
    with pytest.raises(TransactionalIdNotFoundError, match="'nobody'"):
        admin.describe_transactions(["open", "nobody"])
    with pytest.raises(IllegalArgumentError):
        admin.describe_transactions("open")
    assert admin.describe_transactions([]) == {}


@pytest.mark.usefixtures("ids")
def test_producers_of_a_partition_are_those_that_are_under_way(admin: KafkaAdminClient) -> None:
    found = admin.describe_producers([T0, T1, U0])
    opened = admin.describe_transactions(["open"])["open"]

    (active,) = found[T0].active_producers
    assert (active.producer_id, active.producer_epoch) == (opened.producer_id, opened.producer_epoch)
    # Both are as old as the first staged file is by the storage's clock.
    assert active.last_timestamp == pytest.approx(opened.transaction_start_time_ms, abs=5000)
    assert active.current_transaction_start_offset == -1
    assert found[T1].active_producers == found[U0].active_producers == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_producers([TopicPartition("t", 9)])


def test_the_partitions_of_an_open_transaction_are_those_it_wrote_to(
    log_cluster: Cluster, admin: KafkaAdminClient, producer_of: Callable[..., KafkaProducer]
) -> None:
    """As far as what is staged says so: of a file that does not, all partitions of its topic count."""
    del producer_of
    session = log_cluster.transactions.begin_session("job", 60_000, "client", Deadline(SYSTEM_CLOCK, 60_000))
    log, other = log_cluster.log("t"), log_cluster.log("u")
    log.refresh()
    manifest = RunManifest(runs=(StagedRun(0, "1.parquet", 0, 9, 1, 3, 9),), codec="none", time_ms=0)

    def stage(log: TopicLog, content: bytes) -> set[TopicPartition]:
        files = FilesToStage(layout=LAYOUT, content=content, names=(), counts={0: 1}, move=lambda _: None)
        session.stage_files(1, log, files, Deadline(SYSTEM_CLOCK, 60_000))
        return admin.describe_transactions(["job"])["job"].topic_partitions

    first = stage(log, dump_manifest(manifest))
    more = stage(other, dump_manifest(replace(manifest, runs=())))
    unclear = stage(log, b"{")
    (listed,) = log_cluster.transactions.described(["job"]).values()

    assert first == {T1}
    assert more == {T1, U0}
    assert unclear == {T0, T1, U0}
    assert listed.topics == {"t": {}, "u": {}}


def test_the_beginning_of_a_staged_file_says_its_partitions() -> None:
    """Unless it ends before they do."""
    content = pack(batch((3, b'"partitions":[7]'), (12, b"x"), (3, b"y")), "none", None)
    end = content.index(b"]") + 1

    assert partitions_in(content) == partitions_in(content[:end]) == {3: 2, 12: 1}
    assert partitions_in(content[: end - 1]) is None
    assert partitions_in(b"") is None


# --- abort ---------------------------------------------------------------------------------------------


def test_what_is_aborted_is_nowhere_and_its_producer_is_told(
    log_cluster: Cluster, admin: KafkaAdminClient, ids: dict[str, KafkaProducer]
) -> None:
    """By the producer that was seen; a second time it is over."""
    seen = admin.describe_transactions(["open"])["open"]
    spec = AbortTransactionSpec(T0, seen.producer_id, seen.producer_epoch)

    admin.abort_transaction(spec)
    after = admin.describe_transactions(["open"])["open"]

    assert (after.state, after.producer_epoch) == (TransactionState.COMPLETE_ABORT, seen.producer_epoch + 1)
    with pytest.raises(InvalidProducerEpochError):
        ids["open"].commit_transaction()
    with pytest.raises(InvalidProducerEpochError, match="that transaction has ended"):
        admin.abort_transaction(spec)
    assert values(log_cluster, "t") == [b"done"]


def test_a_committed_transaction_stays_committed(log_cluster: Cluster, admin: KafkaAdminClient, ids: object) -> None:
    """Only its producer is shut out."""
    del ids
    admin.abort_transaction("done")

    assert values(log_cluster, "t") == [b"done"]
    assert admin.describe_transactions(["done"])["done"].producer_epoch == 1


@pytest.mark.usefixtures("ids")
def test_nobody_who_is_not_there_is_aborted(admin: KafkaAdminClient) -> None:
    with pytest.raises(TransactionalIdNotFoundError):
        admin.abort_transaction("nobody")
    with pytest.raises(UnknownProducerIdError):
        admin.abort_transaction(AbortTransactionSpec(T0, 987_654, 0))
    with pytest.raises(TransactionalIdNotFoundError):
        admin.fence_producers(["open", "nobody"])
    assert listed(admin.list_transactions()) == STATES


def test_fenced_producers_are_named_with_their_new_epoch(
    admin: KafkaAdminClient, ids: dict[str, KafkaProducer], producer_of: Callable[..., KafkaProducer]
) -> None:
    """As Java's `fenceProducers`; a producer that begins anew goes on above it."""
    known = admin.describe_transactions(["new"])["new"]

    fenced = admin.fence_producers(["new"])
    ids["new"].begin_transaction()
    ids["new"].send("t", b"late", partition=0)
    with pytest.raises(InvalidProducerEpochError):
        ids["new"].commit_transaction()
    producer_of(transactional_id="new").init_transactions()

    assert fenced == {"new": (known.producer_id, known.producer_epoch + 1)}
    assert admin.describe_transactions(["new"])["new"].producer_epoch == known.producer_epoch + 2


def test_what_hangs_is_open_for_longer_than_any_timeout_and_five_minutes(
    log_cluster: Cluster, clock: ManualClock, ids: object
) -> None:
    del ids
    admin = KafkaAdminClient(bootstrap_servers=log_cluster, clock=clock)
    clock.sleep(19 * 60)
    early = admin.find_hanging_transactions()
    clock.sleep(2 * 60)
    (hanging,) = admin.find_hanging_transactions()

    assert early == []
    assert list(hanging) == [
        "transactional_id", "producer_id", "producer_epoch", "state", "age_ms", "coordinator_id", "topic_partitions",
    ]  # fmt: skip
    assert (hanging["transactional_id"], hanging["state"], hanging["topic_partitions"]) == ("open", "Ongoing", [T0])
    assert hanging["age_ms"] >= 20 * MINUTE_MS
    assert admin.find_hanging_transactions(max_transaction_timeout_ms=20 * MINUTE_MS) == []
    assert admin.find_hanging_transactions(broker_ids=[2]) == []


# --- the command line ----------------------------------------------------------------------------------


def rows(done: Done) -> list[list[str]]:
    """Cells of a table, heads first."""
    assert done.code == 0, done.err
    return [[cell.strip() for cell in line.split("\t")][:-1] for line in done.out.splitlines()]


@pytest.mark.usefixtures("ids")
def test_the_command_has_kafkas_columns(log_cluster: Cluster, clock: ManualClock) -> None:
    """list, describe, describe-producers and find-hanging."""
    clock.sleep(30 * 60)
    table = rows(call(log_cluster, "transactions", "list"))
    only = rows(call(log_cluster, "transactions", "list", "--state", "Ongoing", "--duration-filter", "-1"))
    described = rows(call(log_cluster, "transactions", "describe", "--transactional-id", "open", clock=clock))
    producers = rows(call(log_cluster, "transactions", "describe-producers", "--topic", "t", "--partition", "0"))
    hanging = rows(call(log_cluster, "transactions", "find-hanging", "--topic", "t", "--partition", "0", clock=clock))
    elsewhere = rows(call(log_cluster, "transactions", "find-hanging", "--topic", "t", "--partition", "1", clock=clock))

    assert table[0] == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert {row[0]: row[3] for row in table[1:]} == {name: state.value for name, state in STATES.items()}
    assert [row[0] for row in only[1:]] == ["open"]
    assert described[0] == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    assert [described[1][n] for n in (0, 1, 3, 4, 5, 8)] == ["1", "open", "0", "Ongoing", "60000", "t-0"]
    assert int(described[1][7]) >= 29 * MINUTE_MS
    assert [len(row) for row in producers] == [6, 6]
    assert producers[1][5] == "None"
    assert [row[:2] + row[7:] for row in hanging] == [
        ["Topic", "Partition", "Duration(min)", "TransactionalId", "TransactionState"],
        ["t", "0", hanging[1][7], "open", "Ongoing"],
    ]
    assert elsewhere == hanging[:1]
    assert int(hanging[1][7]) >= 29


def test_the_command_aborts(log_cluster: Cluster, admin: KafkaAdminClient, ids: dict[str, KafkaProducer]) -> None:
    """By id, by the producer that was seen, and as force-terminate; nothing is printed."""
    ids["new"].begin_transaction()
    ids["new"].send("t", b"x", partition=0).get(60)
    (seen,) = (one for one in admin.list_transactions()[1] if one.transactional_id == "new")
    for args in (
        ["abort", "--transactional-id", "open"],
        ["abort", "--topic", "t", "--partition", "0", "--producer-id", str(seen.producer_id), "--producer-epoch", "0",
         "--coordinator-epoch", "0"],
        ["force-terminate", "--transactional-id", "gone"],
    ):  # fmt: skip
        done = call(log_cluster, "transactions", *args)
        assert (done.code, done.out, done.err) == (0, "", "")

    assert listed(admin.list_transactions(state_filters=["CompleteAbort"])).keys() == {"open", "new", "gone"}


@only_in_memory("open_log_cluster")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["describe", "--transactional-id", "nobody"], 1, "no transactional id 'nobody'"),
        (["abort"], 1, "must be identified either with --transactional-id"),
        (["abort", "--producer-id", "3"], 1, "must be identified"),
        (["abort", "--start-offset", "3"], 1, "have no offsets"),
        (["find-hanging", "--partition", "0"], 1, "--partition argument requires --topic"),
        (["list", "--state", "Fine"], 1, "unknown state 'Fine'"),
        (["list", "--broker-id", "1"], 1, "no brokers"),
    ],
)
@pytest.mark.usefixtures("ids")
def test_what_cannot_be_done_is_one_line(log_cluster: Cluster, args: list[str], code: int, said: str) -> None:
    done = call(log_cluster, "transactions", *args)

    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert said in done.err


@pytest.mark.usefixtures("ids")
def test_rows_are_dumped_in_the_words_of_kafkas_decoder(log_cluster: Cluster) -> None:
    """The decoder of transactions prints theirs, the one of offsets all."""
    done = call(log_cluster, "dump-log", "--transaction-log-decoder")
    every = call(log_cluster, "dump-log", "--offsets-decoder", "--topic", "__consumer_offsets")

    assert done.code == every.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "Dumping __transaction_state"
    (commit,) = (line for line in lines if "state=PrepareCommit" in line)
    assert "key: transaction_metadata::transactionalId=done payload: producerId:" in commit
    assert "partitions=[t-0]" in commit
    assert commit.endswith("transaction=1,reason=commit,groups=[g]")
    assert sum("state=Empty" in line for line in lines) == 4
    assert sum("state=CompleteAbort" in line for line in lines) == 1
    assert "key: offset_commit::group=g,partition=t-0 payload: offset=1," in every.out
    assert len(every.out.splitlines()) == len(lines) + 1
    assert call(log_cluster, "dump-log", "--transaction-log-decoder", "--topic", "t").code == 1


@pytest.mark.usefixtures("ids")
def test_transactional_ids_are_no_groups(log_cluster: Cluster) -> None:
    """Their rows stand in the same table; the group whose offset was committed is there."""
    assert call(log_cluster, "consumer-groups", "--list").out == "g\n"
    assert call(log_cluster, "verify").code == 0


@pytest.mark.usefixtures("ids")
def test_what_a_transaction_brought_into_a_topic_names_its_row(log_cluster: Cluster) -> None:
    """In the table commits and the topic's history."""
    rows = call(log_cluster, "dump-log", "--transaction-log-decoder").out.splitlines()
    (commit,) = (line for line in rows if "state=PrepareCommit" in line)
    number = commit.split()[2]
    dumped = call(log_cluster, "dump-log", "--topic", "t").out
    told = call(log_cluster, "history", "t", "--kind", "append").out

    assert f" transaction: {number}\n" in dumped
    assert f"transaction {number}: 1 records, 0: [0, 1)" in told


# --- metrics and maintenance ---------------------------------------------------------------------------


def samples(collector: ClusterCollector) -> dict[str, float]:
    """Values by name, those with an outcome under `name/outcome`."""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if "transaction" in sample.name
    }


def test_metrics_count_what_is_open_and_what_has_ended(
    log_cluster: Cluster, admin: KafkaAdminClient, ids: dict[str, KafkaProducer], clock: ManualClock
) -> None:
    """The clock begins when the transactions are there: they are at least as old as it goes on, however slow they
    were."""
    collector = ClusterCollector(admin, Lags(log_cluster), clock)
    clock.sleep(10)
    before = samples(collector)
    ids["open"].commit_transaction()
    after = samples(collector)
    printed = json.loads(call(log_cluster, "metrics", "--json").out)["transactions"]

    assert before.pop("kafkalike_transactions_open_seconds_max") >= 10
    assert before == {
        "kafkalike_transactional_ids": 4,
        "kafkalike_transactions_open": 1,
        "kafkalike_transactions_unapplied": 0,
        "kafkalike_transactions_unapplied_seconds_max": 0,
        "kafkalike_transactions_total/commit": 1,
        "kafkalike_transactions_total/abort": 1,
    }
    assert after["kafkalike_transactions_open"] == after["kafkalike_transactions_open_seconds_max"] == 0
    assert after["kafkalike_transactions_total/commit"] == 2
    assert (printed["ids"], printed["open"], printed["commits"], printed["aborts"]) == (4, 0, 2, 1)


def test_maintenance_says_what_it_would_do_and_what_it_has_done(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]
) -> None:
    """A dry run changes nothing; what is past its timeout is aborted then."""
    hanging = producer_of(transactional_id="hangs", transaction_timeout_ms=1)
    hanging.init_transactions()
    hanging.begin_transaction()
    hanging.send("t", b"x", partition=0).get(60)
    while maintain(log_cluster, clock=SYSTEM_CLOCK, dry_run=True).aborted_transactions == 0:
        SYSTEM_CLOCK.sleep(0.001)
    listed_then = listed(KafkaAdminClient(bootstrap_servers=log_cluster).list_transactions())
    told = call(log_cluster, "maintain", "--only", "control")
    again = maintain(log_cluster, clock=SYSTEM_CLOCK)

    assert listed_then == {"hangs": TransactionState.ONGOING}
    assert ", 1 transaction aborted after their timeout," in told.out, told.err
    assert (again.aborted_transactions, again.problems) == (0, [])
    assert listed(KafkaAdminClient(bootstrap_servers=log_cluster).list_transactions()) == {
        "hangs": TransactionState.COMPLETE_ABORT
    }
    assert values(log_cluster, "t") == []


def test_an_id_that_nobody_uses_is_forgotten(log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]) -> None:
    """After `transactional.id.expiration.ms`; one that is open is not."""
    log_cluster.edit_defaults(lambda _: {"transactional.id.expiration.ms": "1"})
    for name in ("unused", "used"):
        producer = producer_of(transactional_id=name)
        producer.init_transactions()
        if name == "used":
            producer.begin_transaction()
            producer.send("t", b"x", partition=0).get(60)
    while maintain(log_cluster, clock=SYSTEM_CLOCK, dry_run=True).forgotten_transactional_ids == 0:
        SYSTEM_CLOCK.sleep(0.001)

    report = maintain(log_cluster, clock=SYSTEM_CLOCK)

    assert (report.forgotten_transactional_ids, report.problems) == (1, [])
    assert listed(KafkaAdminClient(bootstrap_servers=log_cluster).list_transactions()).keys() == {"used"}
    assert "<DELETE>" in call(log_cluster, "dump-log", "--transaction-log-decoder").out
