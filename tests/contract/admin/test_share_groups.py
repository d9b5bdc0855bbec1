"""Share groups for people: the command, the admin client, metrics, SQL rows and the console's page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from starlette.testclient import TestClient

from kafkalike import (
    AcknowledgeType,
    ConfigResource,
    KafkaAdminClient,
    KafkaProducer,
    KafkaShareConsumer,
    TopicPartition,
    errors,
)
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.cli.groups.share_groups import ACTIONS
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_expiry import expire_offsets
from kafkalike.model.group_state import GroupsState
from kafkalike.model.maintenance.control_rows import kept_group_rows
from kafkalike.ui.access_control import AccessControl
from kafkalike.ui.app import console
from kafkalike.ui.cluster_view import ConsoleView
from tests.tools.cli import call

NOW = 1_700_000_000
T0 = TopicPartition("jobs", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def cluster(clock: ManualClock) -> Cluster:
    """A queue with six records in its first partition."""
    made = MemoryCluster(clock=clock)
    made.create_topic("jobs", 2, {})
    with KafkaProducer(bootstrap_servers=made) as producer:
        for value in (b"a", b"b", b"c", b"d", b"e", b"f"):
            producer.send("jobs", value, partition=0, timestamp_ms=NOW * 1000)
    return made


@pytest.fixture
def consumer(cluster: Cluster, clock: ManualClock) -> Iterator[KafkaShareConsumer]:
    """A member that has accepted record 1, released record 2 for a minute, and holds records 0 and 3."""
    with KafkaShareConsumer(
        "jobs",
        bootstrap_servers=cluster,
        clock=clock,
        group_id="work",
        client_id="painter",
        share_auto_offset_reset="earliest",
        share_acknowledgement_mode="explicit",
        session_timeout_ms=10_000_000,
    ) as made:
        records = made.poll(max_records=4)
        made.acknowledge(records[1])
        made.acknowledge(records[2], AcknowledgeType.RELEASE, delay_ms=60_000)
        made.commit()
        yield made


@pytest.fixture
def left(cluster: Cluster, consumer: KafkaShareConsumer) -> Cluster:
    """The queue after its member has left."""
    consumer.close()
    return cluster


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]


def test_list_prints_share_groups_only(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    assert call(cluster, "share-groups", "--list").out == "work\n"
    assert call(cluster, "consumer-groups", "--list").out == ""
    assert lines(call(cluster, "share-groups", "--list", "--state").out) == [["GROUP", "STATE"], ["work", "Stable"]]
    assert call(cluster, "share-groups", "--list", "--state", "Empty", "--output", "json").out == ""


def test_describe_prints_start_offsets_and_lag(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    done = call(cluster, "share-groups", "--describe", "--group", "work")
    assert (done.code, done.err) == (0, "")
    assert lines(done.out) == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["work", "jobs", "0", "0", "5"],
        ["work", "jobs", "1", "0", "0"],
    ]
    verbose = lines(call(cluster, "share-groups", "--describe", "--all-groups", "--verbose").out)
    assert verbose[1] == ["work", "jobs", "0", "0", "5", "6", "2", "1"]


def test_describe_prints_members_and_state(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    member = consumer.share_group_metadata().member_id
    found = json.loads(
        call(cluster, "share-groups", "--describe", "--group", "work", "--members", "--output", "json").out
    )
    assert (found["consumer_id"], found["client_id"], found["assignment"]) == (member, "painter", "jobs:0,1")
    state = json.loads(
        call(cluster, "share-groups", "--describe", "--group", "work", "--state", "--output", "json").out
    )
    assert (state["state"], state["members"]) == ("Stable", 1)


def test_describe_prints_who_holds_which_record(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    member = consumer.share_group_metadata().member_id
    printed = lines(call(cluster, "share-groups", "--describe", "--group", "work", "--records").out)
    since, until = "2023-11-14T22:13:20.000+00:00", "2023-11-14T22:13:50.000+00:00"
    assert printed[0][3:] == ["FIRST-OFFSET", "LAST-OFFSET", "STATE", "DELIVERY-COUNT", "CONSUMER-ID", "SINCE", "UNTIL"]
    assert printed[1:] == [
        ["work", "jobs", "0", "0", "0", "acquired", "1", member, since, until],
        ["work", "jobs", "0", "1", "1", "acknowledged", "0", "-", "-", "-"],
        ["work", "jobs", "0", "2", "2", "available", "1", "-", "-", "2023-11-14T22:14:20.000+00:00"],
        ["work", "jobs", "0", "3", "3", "acquired", "1", member, since, until],
    ]


def test_records_of_a_group_that_has_finished_all_are_reported_as_none(left: Cluster) -> None:
    call(left, "share-groups", "--reset-offsets", "--group", "work", "--topic", "jobs", "--to-latest", "--execute")
    done = call(left, "share-groups", "--describe", "--group", "work", "--records")
    assert (done.code, done.out) == (0, "")
    assert done.err.endswith("Share group 'work' holds no records: each record below its log end is finished or new.\n")


def test_reset_is_refused_while_the_group_has_members(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    done = call(
        cluster, "share-groups", "--reset-offsets", "--group", "work", "--topic", "jobs", "--to-latest", "--execute"
    )
    assert done.code == 1
    assert "share group 'work' was not changed, because it has members: painter-" in done.err


def test_reset_moves_the_start(left: Cluster, clock: ManualClock) -> None:
    asked = call(left, "share-groups", "--reset-offsets", "--group", "work", "--all-topics", "--to-latest")
    assert lines(asked.out)[1:] == [["work", "jobs", "0", "6"], ["work", "jobs", "1", "0"]]
    assert "--execute option is missing" in asked.err
    assert left.groups.refresh().shares["work"][T0].start == 0
    call(left, "share-groups", "--reset-offsets", "--group", "work", "--topic", "jobs:0", "--to-latest", "--execute")
    assert left.groups.refresh().shares["work"][T0].start == 6
    call(left, "share-groups", "--reset-offsets", "--group", "work", "--topic", "jobs:0", "--to-earliest", "--execute")
    assert lines(call(left, "share-groups", "--describe", "--group", "work").out)[1] == ["work", "jobs", "0", "0", "6"]


def test_offsets_of_a_topic_are_deleted(left: Cluster) -> None:
    missing = call(left, "share-groups", "--delete-offsets", "--group", "work", "--topic", "none")
    assert (missing.code, missing.err) == (1, "Error: share group 'work' has no state of none\n")
    done = call(left, "share-groups", "--delete-offsets", "--group", "work", "--topic", "jobs")
    assert done.out == "Request succeeded for deleting offsets from share group work.\n"
    assert left.groups.refresh().share_groups == []


def test_group_is_deleted_when_it_has_no_members(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    before = call(cluster, "share-groups", "--delete", "--group", "work", "--group", "none")
    consumer.close()
    after = call(cluster, "share-groups", "--delete", "--all-groups")
    assert before.code == 1
    assert "Group 'work' could not be deleted due to: " in before.err
    assert "share group 'none' does not exist" in before.err
    assert after.out == "Deletion of requested share groups ('work') was successful.\n"
    assert call(cluster, "share-groups", "--describe", "--group", "work").err == (
        "Error: Share group 'work' does not exist.\n"
    )


WRONG = {
    "no action": ([], "exactly one action"),
    "two actions": (["--list", "--delete"], "exactly one action"),
    "no group": (["--describe"], "takes one of these options: --group, --all-groups"),
    "two groups to reset": (["--reset-offsets", "--group", "a", "--group", "b"], "takes --group (once)"),
    "two reports": (["--describe", "--group", "a", "--members", "--offsets"], "takes at most one of these options"),
    "no scenario": (["--reset-offsets", "--group", "a", "--all-topics"], "one of the following scenarios"),
    "no scope": (["--reset-offsets", "--group", "a", "--to-latest"], "One of the reset scopes"),
    "no topic": (["--delete-offsets", "--group", "a"], "takes the option: --topic"),
}


@pytest.mark.parametrize(("args", "words"), WRONG.values(), ids=WRONG)
def test_wrong_options_are_refused(cluster: Cluster, args: list[str], words: str) -> None:
    done = call(cluster, "share-groups", *args)
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert len(ACTIONS) == 5


def test_admin_client_refuses_impossible_offsets(left: Cluster) -> None:
    with KafkaAdminClient(bootstrap_servers=left) as admin:
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="jobs-7 does not exist"):
            admin.alter_share_group_offsets("work", {TopicPartition("jobs", 7): 0})
        with pytest.raises(errors.IllegalArgumentError, match="an offset from 0 on"):
            admin.alter_share_group_offsets("work", {T0: -1})
        admin.alter_share_group_offsets("new", {T0: 4})
        assert [group["group_id"] for group in admin.list_share_groups()] == ["new", "work"]


def test_state_of_a_deleted_topic_is_removed(left: Cluster, clock: ManualClock) -> None:
    left.delete_topic("jobs")
    done = expire_offsets(left, clock)
    assert done.orphaned == {"work": [T0, TopicPartition("jobs", 1)]}
    assert left.groups.refresh().share_groups == []


def test_metrics_tell_lag_and_locks(cluster: Cluster, consumer: KafkaShareConsumer, clock: ManualClock) -> None:
    clock.seconds += 12
    text = call(cluster, "metrics", clock=clock).out
    where = '{partition="0",sharegroup="work",topic="jobs"}'
    found = {line.split("{")[0]: float(line.split()[1]) for line in text.splitlines() if where in line}
    assert found == {
        "kafkalike_sharegroup_start_offset": 0.0,
        "kafkalike_sharegroup_lag": 5.0,
        "kafkalike_sharegroup_acquired_records": 2.0,
        "kafkalike_sharegroup_scheduled_records": 1.0,
        "kafkalike_sharegroup_oldest_lock_seconds": 12.0,
    }
    assert 'kafkalike_sharegroup_members{sharegroup="work"} 1.0' in text
    as_json = json.loads(call(cluster, "metrics", "--json", clock=clock).out)["share_groups"]
    assert as_json["work"]["jobs"]["0"] == {"start_offset": 0, "lag": 5, "acquired": 2, "scheduled": 1}


@pytest.mark.slow
def test_page_shows_groups_and_records(cluster: Cluster, consumer: KafkaShareConsumer, clock: ManualClock) -> None:
    view = ConsoleView(cluster, clock, metrics=lambda: b"", patience_seconds=60)
    access = AccessControl(token="token", port=80, read_only=True)  # noqa: S106
    client = TestClient(console(view, access), base_url="http://localhost")
    client.get("/", params={"token": "token"})
    overview = client.get("/share-groups")
    detail = client.get("/share-groups", params={"id": "work"})
    missing = client.get("/share-groups", params={"id": "none"})
    assert overview.status_code == detail.status_code == 200
    assert '<a href="/share-groups?id=work">work</a>' in overview.text
    assert consumer.share_group_metadata().member_id in detail.text
    assert "acquired" in detail.text
    assert missing.status_code == 404


def test_each_table_of_the_cluster_has_a_view() -> None:
    from kafkalike.model.topic_sql import SQL_RESERVED, table_view
    from kafkalike.spark.sql.cluster_tables import ROWS, SCHEMAS

    assert set(SQL_RESERVED) == set(map(table_view, ROWS)) == set(map(table_view, SCHEMAS))
    assert {"kafkalike_share_groups", "kafkalike_share_state"} <= set(SQL_RESERVED)


def test_sql_rows_tell_state_and_lag(cluster: Cluster, consumer: KafkaShareConsumer) -> None:
    from kafkalike.spark.sql.cluster_tables import ROWS, SCHEMAS

    member = consumer.share_group_metadata().member_id
    since, until = datetime.fromtimestamp(NOW, UTC), datetime.fromtimestamp(NOW + 30, UTC)
    groups, records = (
        [dict(zip(SCHEMAS[name].names, row, strict=True)) for row in ROWS[name](cluster)]
        for name in ("share_groups", "share_state")
    )
    wanted = ("partition", "lag", "acquired", "scheduled", "oldest_lock")
    assert [tuple(row[name] for name in wanted) for row in groups] == [(0, 5, 2, 1, since), (1, 0, 0, 0, None)]
    assert [(row["first_offset"], row["records"], row["state"], row["member_id"], row["since"]) for row in records] == [
        (0, 1, "acquired", member, since),
        (1, 1, "acknowledged", None, None),
        (2, 1, "available", None, None),
        (3, 1, "acquired", member, since),
    ]
    assert [row["until"] for row in records] == [until, None, datetime.fromtimestamp(NOW + 60, UTC), until]


# --- settings of a group ---------------------------------------------------------------------------


def test_settings_of_a_group_apply_to_its_members() -> None:
    cluster = MemoryCluster()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    resource = ConfigResource(
        "group", "work", {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "7000"}
    )
    cluster.create_topic("jobs", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("jobs", b"a")

    done = admin.alter_configs([resource])
    with KafkaShareConsumer("jobs", bootstrap_servers=cluster, group_id="work") as consumer:
        got = [record.value for record in consumer.poll(timeout_ms=5_000)]
        lock_ms = consumer.acquisition_lock_timeout_ms
        admin.alter_configs([ConfigResource("group", "work", {"share.record.lock.duration.ms": "9000"})])
        consumer.poll()
        later_ms = consumer.acquisition_lock_timeout_ms
    with KafkaShareConsumer(bootstrap_servers=cluster, group_id="work", share_record_lock_duration_ms=500) as own:
        own_ms = own.acquisition_lock_timeout_ms

    assert done == {"group": {"work": "OK"}}
    assert got == [b"a"]
    assert [lock_ms, later_ms, own_ms] == [7_000, 9_000, 500]


def test_settings_of_a_group_are_described_reset_and_kept_by_compaction() -> None:
    cluster = MemoryCluster()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    admin.alter_configs([ConfigResource("group", "work", {"share.session.timeout.ms": 60_000})])
    admin.alter_configs([ConfigResource("group", "gone", {"share.session.timeout.ms": 60_000})])
    admin.reset_configs([ConfigResource("group", "gone")])
    kept = kept_group_rows(cluster.groups.rows, 2**50)

    described = admin.describe_configs([ConfigResource("group", "work")])["group"]["work"]
    every = admin.describe_configs([ConfigResource("group", "work")], config_filter="all")["group"]["work"]

    assert {name: entry["value"] for name, entry in described.items()} == {"share.session.timeout.ms": "60000"}
    assert described["share.session.timeout.ms"]["config_source"] == "DYNAMIC_GROUP_CONFIG"
    assert {name: entry["value"] for name, entry in every.items()} == {
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "5000",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "100000",
        "share.record.lock.duration.ms": "30000",
        "share.session.timeout.ms": "60000",
    }
    assert admin.list_config_resources(["group"]) == {"group": ["work"]}
    assert GroupsState().applied(kept).configs == {"work": {"share.session.timeout.ms": "60000"}}


def test_command_alters_and_describes_the_settings_of_a_group(cluster: Cluster) -> None:
    group = ("--entity-type", "groups", "--entity-name", "work")
    lock, limit = "share.record.lock.duration.ms=60000", "share.delivery.count.limit=3"

    altered = call(cluster, "configs", "--alter", *group, "--add-config", f"{lock},{limit}")
    described = call(cluster, "configs", "--describe", *group).out
    reset = call(cluster, "configs", "--alter", *group, "--delete-config", "share.delivery.count.limit")
    left = call(cluster, "configs", "--describe", "--group", "work").out
    wrong = call(cluster, "configs", "--alter", *group, "--add-config", "share.record.lock.duration.ms=soon")

    assert (altered.code, reset.code, wrong.code) == (0, 0, 1)
    assert lock in described
    assert limit in described
    assert lock in left
    assert limit not in left
    assert "share.record.lock.duration.ms" in wrong.err
    assert cluster.groups.refresh().configs == {"work": {"share.record.lock.duration.ms": "60000"}}


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        pytest.param({"share.auto.offset.reset": "soon"}, "invalid value for group setting", id="unknown reset"),
        pytest.param({"share.heartbeat.interval.ms": "45000"}, "must be below", id="heartbeat as long as the session"),
        pytest.param({"share.isolation.level": "none"}, "read_uncommitted, read_committed", id="unknown level"),
    ],
)
def test_bad_setting_of_a_group_is_rejected_before_anything_is_written(configs: dict[str, str], message: str) -> None:
    cluster = MemoryCluster()
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    with pytest.raises(errors.InvalidConfigurationError, match=message):
        admin.alter_configs([ConfigResource("group", "work", configs)], raise_errors=True)
    with pytest.raises(errors.IllegalArgumentError, match="each consumer sets"):
        admin.alter_configs([ConfigResource("group", "work", {"consumer.session.timeout.ms": "1"})])
    assert not cluster.groups.exists
