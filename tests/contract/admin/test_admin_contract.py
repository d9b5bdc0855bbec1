"""What kafka-python's admin client promises, over a cluster in memory and one on Delta tables."""

import logging
import uuid
from typing import Any

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import roster_row
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.structs import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetSpec,
    TopicPartition,
)
from tests.tools.groups import commit_row
from tests.tools.kinds import only_in_memory
from tests.tools.records import batch, fill_at


@pytest.fixture
def admin(cluster: Cluster) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=cluster)


def topic_resource(name: str, configs: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, configs)


# --- topics ------------------------------------------------------------------------------------


def test_topics_are_created_from_names_dicts_and_new_topics(admin: KafkaAdminClient) -> None:
    """Topics are created from names dicts and new topics."""
    admin.create_topics(["a"])
    admin.create_topics({"b": {"num_partitions": 3, "configs": {"retention.ms": 1000}}})
    admin.create_topics([NewTopic("c", 2, 1, topic_configs={"cleanup.policy": "compact"})])

    assert admin.list_topics() == ["a", "b", "c"]
    assert [len(t["partitions"]) for t in admin.describe_topics()] == [1, 3, 2]


def test_creating_says_what_was_created(admin: KafkaAdminClient) -> None:
    """Creating says what was created."""
    result = admin.create_topics({"t": {"num_partitions": 2, "configs": {"retention.ms": "5"}}})

    (topic,) = result["topics"]
    assert topic["topic_id"] == admin.describe_topics(["t"])[0]["topic_id"]
    (described,) = admin.describe_topics(["t"])
    assert (topic["error_code"], topic["num_partitions"]) == (0, 2)
    assert topic["replication_factor"] == len(described["partitions"][0]["replica_nodes"])
    assert topic["configs"] == {"retention.ms": {"value": "5"}}


def test_validate_only_creates_nothing(admin: KafkaAdminClient) -> None:
    """Validate only creates nothing."""
    admin.create_topics(["t"], validate_only=True)

    assert admin.list_topics() == []


def test_validate_only_says_what_is_wrong(admin: KafkaAdminClient) -> None:
    """Validate only says what is wrong."""
    with pytest.raises(InvalidConfigurationError, match=r"did you mean 'retention\.ms'"):
        admin.create_topics({"t": {"configs": {"retention.m": 1}}}, validate_only=True)


def test_a_topic_that_is_refused_does_not_keep_others_back(admin: KafkaAdminClient) -> None:
    """A topic that is refused does not keep others back."""
    admin.create_topics(["a"])

    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["a", "b"])

    assert admin.list_topics() == ["a", "b"]


def test_without_raise_errors_the_result_has_them(admin: KafkaAdminClient) -> None:
    """Without raise errors the result has them."""
    result = admin.create_topics(["a b"], raise_errors=False)

    assert result["topics"][0]["error_code"] == InvalidTopicError.errno


@pytest.mark.parametrize("factor", [0, -2, True, "1", 1.0])
def test_a_replication_factor_that_is_none_is_refused(admin: KafkaAdminClient, factor: object) -> None:
    """A replication factor that is none is refused."""
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({"t": {"replication_factor": factor}})


def test_more_replicas_than_roots_are_refused_in_kafkas_words(admin: KafkaAdminClient) -> None:
    """More replicas than roots are refused in kafkas words."""
    with pytest.raises(InvalidReplicationFactorError) as caught:
        admin.create_topics([NewTopic("t", 1, 9)])

    brokers = len(admin.describe_cluster()["brokers"])
    assert str(caught.value) == f"Replication factor: 9 larger than available brokers: {brokers}."


@pytest.mark.parametrize("assignment", [{0: [99]}, {1: [1]}, {0: ["x"]}, {0: 1}], ids=str)
def test_a_replica_assignment_that_cannot_be_is_refused(admin: KafkaAdminClient, assignment: Any) -> None:
    """A replica assignment that cannot be is refused."""
    with pytest.raises(InvalidReplicationAssignmentError):
        admin.create_topics([NewTopic("t", replica_assignments=assignment)])

    assert admin.list_topics() == []


def test_a_replica_assignment_says_how_many_partitions_there_are(admin: KafkaAdminClient) -> None:
    """And excludes other numbers, as in Kafka."""
    admin.create_topics([NewTopic("t", replica_assignments={0: [1], 1: [1]})])

    (topic,) = admin.describe_topics(["t"])
    assert [p["replica_nodes"] for p in topic["partitions"]] == [[1], [1]]
    with pytest.raises(InvalidRequestError, match="replication factor must be -1"):
        admin.create_topics([NewTopic("u", -1, 1, replica_assignments={0: [1]})])
    with pytest.raises(InvalidRequestError, match="number of partitions must be -1"):
        admin.create_topics([NewTopic("u", 3, replica_assignments={0: [1]})])


@only_in_memory("cluster")
@pytest.mark.parametrize(
    "name", [None, 0, b"t", "", ".", "..", "x" * 250, "a/b", "../x", "a b", "a\n", "a\x00", "`; DROP TABLE t--"]
)
def test_a_name_that_kafka_refuses_is_refused(admin: KafkaAdminClient, name: object) -> None:
    """A name that kafka refuses is refused."""
    with pytest.raises(InvalidTopicError):
        admin.create_topics([name])  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -2, 1_000_000, True, "3"])
def test_a_partition_count_that_is_none_is_refused(admin: KafkaAdminClient, count: object) -> None:
    """A partition count that is none is refused."""
    with pytest.raises(InvalidPartitionsError):
        admin.create_topics({"t": {"num_partitions": count}})


@pytest.mark.parametrize("given", ["t", [], {}, 3, {"t": {"partitions": 3}}, {"t": 3}])
def test_what_names_no_topics_is_refused(admin: KafkaAdminClient, given: Any) -> None:
    """What names no topics is refused."""
    with pytest.raises(IllegalArgumentError):
        admin.create_topics(given)


def test_a_name_given_twice_is_refused(admin: KafkaAdminClient) -> None:
    """A name given twice is refused."""
    with pytest.raises(InvalidRequestError, match="twice"):
        admin.create_topics(["t", "t"])


def test_topics_are_deleted_by_name_and_by_id(admin: KafkaAdminClient) -> None:
    """Topics are deleted by name and by id."""
    admin.create_topics(["a", "b"])
    (a,) = admin.describe_topics(["a"])

    result = admin.delete_topics([uuid.UUID(a["topic_id"]), "b"])

    assert [t["name"] for t in result["topics"]] == ["a", "b"]
    assert admin.list_topics() == []


def test_deleting_what_is_not_there_is_an_error(admin: KafkaAdminClient) -> None:
    """Deleting what is not there is an error."""
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["t"])


def test_a_topic_that_is_created_again_has_another_id(admin: KafkaAdminClient) -> None:
    """A topic that is created again has another id."""
    first = admin.create_topics(["t"])["topics"][0]["topic_id"]
    admin.delete_topics(["t"])

    second = admin.create_topics(["t"])["topics"][0]["topic_id"]

    assert first != second


def test_describing_says_leader_and_replicas_of_each_partition(admin: KafkaAdminClient) -> None:
    """Describing says leader and replicas of each partition."""
    admin.create_topics({"t": {"num_partitions": 2}})

    (topic,) = admin.describe_topics(["t"])

    assert [p["partition_index"] for p in topic["partitions"]] == [0, 1]
    for p in topic["partitions"]:
        assert p["leader_id"] == p["replica_nodes"][0]
        assert p["isr_nodes"] == sorted(p["replica_nodes"])
        assert (p["error_code"], p["offline_replicas"]) == (0, [])


def test_describing_what_is_not_there_has_an_error_code(admin: KafkaAdminClient) -> None:
    """Describing what is not there has an error code."""
    (topic,) = admin.describe_topics(["t"])

    assert (topic["name"], topic["error_code"], topic["partitions"]) == ("t", 3, [])


def test_partitions_are_described_in_pages(admin: KafkaAdminClient) -> None:
    """Partitions are described in pages."""
    admin.create_topics({"a": {"num_partitions": 3}, "b": {"num_partitions": 2}})

    first = admin.describe_topic_partitions(["a", "b"], response_partition_limit=4)
    second = admin.describe_topic_partitions(["a", "b"], response_partition_limit=4, cursor=first["next_cursor"])

    assert [(t["name"], len(t["partitions"])) for t in first["topics"]] == [("a", 3), ("b", 1)]
    assert [(t["name"], [p["partition_index"] for p in t["partitions"]]) for t in second["topics"]] == [("b", [1])]
    assert second["next_cursor"] is None


def test_waiting_returns_when_the_topics_are_there(admin: KafkaAdminClient) -> None:
    """Waiting returns when the topics are there."""
    admin.create_topics(["t"])

    admin.wait_for_topics(["t"])


def test_waiting_ends_with_the_names_that_are_missing(cluster: Cluster) -> None:
    """Waiting ends with the names that are missing."""
    admin = KafkaAdminClient(bootstrap_servers=cluster, clock=SYSTEM_CLOCK)

    with pytest.raises(KafkaTimeoutError, match="nowhere"):
        admin.wait_for_topics(["nowhere"], timeout_ms=1)


# --- partitions and offsets ----------------------------------------------------------------------


@pytest.mark.parametrize("total", [3, NewPartitions(3), {"count": 3}])
def test_partitions_are_added(admin: KafkaAdminClient, total: Any) -> None:
    """Partitions are added."""
    admin.create_topics(["t"])

    admin.create_partitions({"t": total})

    assert len(admin.describe_topics(["t"])[0]["partitions"]) == 3


def test_validate_only_adds_no_partitions(admin: KafkaAdminClient) -> None:
    """Validate only adds no partitions."""
    admin.create_topics(["t"])

    admin.create_partitions({"t": 3}, validate_only=True)

    assert len(admin.describe_topics(["t"])[0]["partitions"]) == 1


@only_in_memory("cluster")
@pytest.mark.parametrize("total", [1, 0, -1, 1_000_000, True, "3"])
def test_a_count_that_is_not_above_the_present_one_is_refused(admin: KafkaAdminClient, total: Any) -> None:
    """A count that is not above the present one is refused."""
    admin.create_topics(["t"])

    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"t": total})


def test_new_partitions_with_an_assignment_are_refused(admin: KafkaAdminClient) -> None:
    """New partitions with an assignment are refused."""
    admin.create_topics(["t"])

    with pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({"t": NewPartitions(2, [[1]])})


def test_offsets_are_found_by_spec_and_by_time(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Offsets are found by spec and by time."""
    admin.create_topics(["t"])
    fill_at(cluster, "t", 100, 300, 200)
    where = TopicPartition("t", 0)

    def found(spec: OffsetSpec | int) -> OffsetAndTimestamp:
        return admin.list_partition_offsets({where: spec})[where]

    assert found(OffsetSpec.EARLIEST).offset == 0
    assert found(OffsetSpec.EARLIEST_LOCAL).offset == 0
    assert found(OffsetSpec.LATEST).offset == 3
    assert found(OffsetSpec.MAX_TIMESTAMP) == OffsetAndTimestamp(1, 300)
    assert found(150) == OffsetAndTimestamp(1, 300)
    assert found(301) == OffsetAndTimestamp(-1, -1)
    assert found(OffsetSpec.LATEST_TIERED) == OffsetAndTimestamp(-1, -1)


def test_offsets_of_a_partition_that_does_not_exist_are_an_error(admin: KafkaAdminClient) -> None:
    """Offsets of a partition that does not exist are an error."""
    admin.create_topics(["t"])

    with pytest.raises(UnknownTopicOrPartitionError):
        admin.list_partition_offsets({TopicPartition("t", 1): OffsetSpec.LATEST})


@only_in_memory("cluster")
@pytest.mark.parametrize("spec", [-6, True, "latest", 1.5])
def test_a_time_that_is_none_is_refused(admin: KafkaAdminClient, spec: Any) -> None:
    """A time that is none is refused."""
    admin.create_topics(["t"])

    with pytest.raises(InvalidRequestError):
        admin.list_partition_offsets({TopicPartition("t", 0): spec})


def test_deleting_records_moves_the_log_start(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Deleting records moves the log start."""
    admin.create_topics({"t": {"num_partitions": 2}})
    fill_at(cluster, "t", 1, 2, 3)
    fill_at(cluster, "t", 1, 2, partition=1)

    result = admin.delete_records({TopicPartition("t", 0): 2, TopicPartition("t", 1): -1})

    assert {p: r["low_watermark"] for p, r in result.items()} == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 2}
    assert (
        admin.list_partition_offsets({TopicPartition("t", 0): OffsetSpec.EARLIEST})[TopicPartition("t", 0)].offset == 2
    )


def test_delete_records_leaves_a_topic_alone_that_took_the_name_meanwhile(
    admin: KafkaAdminClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was created between the look at the log end and the change."""
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch(b"old"))
    move = cluster.move_log_start

    def moved_late(*given: Any, **options: Any) -> Any:
        cluster.delete_topic("t")
        cluster.create_topic("t", 1, {})
        cluster.log("t").append(batch(b"new"))
        return move(*given, **options)

    monkeypatch.setattr(cluster, "move_log_start", moved_late)

    with pytest.raises(TopicDeletedError):
        admin.delete_records({TopicPartition("t", 0): -1})

    assert cluster.topic("t").log_start(0) == 0


def test_deleting_records_never_moves_the_log_start_back(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Deleting records never moves the log start back."""
    admin.create_topics(["t"])
    fill_at(cluster, "t", 1, 2, 3)
    admin.delete_records({TopicPartition("t", 0): 2})

    result = admin.delete_records({TopicPartition("t", 0): 1})

    assert result[TopicPartition("t", 0)]["low_watermark"] == 2


def test_deleting_records_names_its_run(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Deleting records names its run."""
    admin.create_topics(["t"])
    fill_at(cluster, "t", 1, 2, 3)

    admin.delete_records({TopicPartition("t", 0): 2})

    moved = cluster.topic("t").log_starts[0]
    assert (moved.reason, bool(uuid.UUID(moved.run))) == ("delete_records", True)


def test_deleting_beyond_the_log_end_is_refused(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Deleting beyond the log end is refused."""
    admin.create_topics(["t"])
    fill_at(cluster, "t", 1)

    with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 5 is not in \[0, 1\)"):
        admin.delete_records({TopicPartition("t", 0): 5})


@only_in_memory("cluster")
@pytest.mark.parametrize("offset", [-2, 2**63, "5", True, None, 1.0])
def test_an_offset_that_is_none_is_refused(admin: KafkaAdminClient, offset: Any) -> None:
    """An offset that is none is refused."""
    admin.create_topics(["t"])

    with pytest.raises(IllegalArgumentError):
        admin.delete_records({TopicPartition("t", 0): offset})


def test_disk_use_is_said_by_partition(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Disk use is said by partition."""
    admin.create_topics({"t": {"num_partitions": 2}})
    fill_at(cluster, "t", 1, partition=1)

    leader = admin.describe_topics(["t"])[0]["partitions"][0]["leader_id"]
    (found,) = admin.describe_log_dirs(brokers=[leader])
    ((topic,),) = [d["topics"] for d in found["log_dirs"]]

    assert found["broker"] == leader
    sizes = [p["partition_size"] for p in topic["partitions"]]
    assert sizes[0] == 0 < sizes[1]


# --- settings ------------------------------------------------------------------------------------


def test_a_setting_says_where_it_comes_from(admin: KafkaAdminClient) -> None:
    """A setting says where it comes from."""
    admin.create_topics({"t": {"configs": {"retention.ms": 5}}})

    described = admin.describe_configs([topic_resource("t")], config_filter="all")["topic"]["t"]

    assert (described["retention.ms"]["value"], described["retention.ms"]["config_source"]) == (
        "5",
        "DYNAMIC_TOPIC_CONFIG",
    )
    assert described["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"


def test_only_modified_settings_are_described_unless_asked(admin: KafkaAdminClient) -> None:
    """Only modified settings are described unless asked."""
    admin.create_topics({"t": {"configs": {"retention.ms": 5}}})

    described = admin.describe_configs([topic_resource("t")])

    assert list(described["topic"]["t"]) == ["retention.ms"]


def test_named_settings_alone_are_described(admin: KafkaAdminClient) -> None:
    """Named settings alone are described."""
    admin.create_topics(["t"])

    described = admin.describe_configs([topic_resource("t", ["segment.ms"])], config_filter="all")

    assert list(described["topic"]["t"]) == ["segment.ms"]


def test_synonyms_name_every_source(admin: KafkaAdminClient) -> None:
    """Synonyms name every source."""
    admin.create_topics({"t": {"configs": {"cleanup.policy": "compact"}}})

    described = admin.describe_configs([topic_resource("t")], include_synonyms=True)["topic"]["t"]

    assert described["cleanup.policy"]["synonyms"] == [
        {"name": "cleanup.policy", "value": "compact", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "log.cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG"},
    ]


@pytest.mark.parametrize(("name", "error"), [("x", ValueError), ("2", InvalidRequestError)])
def test_there_is_one_broker_whose_id_is_a_number(admin: KafkaAdminClient, name: str, error: type[Exception]) -> None:
    """kafka-python's `int` refuses what is no number."""
    with pytest.raises(error, match="broker"):
        admin.describe_configs([ConfigResource("broker", name)])


def test_settings_of_the_server_are_described_as_broker_1(admin: KafkaAdminClient) -> None:
    """Settings of the server are described as broker 1."""
    described = admin.describe_configs([ConfigResource("broker", "1")], config_filter="all")["broker"]["1"]

    assert described["num.partitions"]["value"] == "1"
    assert described["num.partitions"]["read_only"] is True


def test_settings_are_set_and_deleted_one_by_one(admin: KafkaAdminClient) -> None:
    """Settings are set and deleted one by one."""
    admin.create_topics({"t": {"configs": {"retention.ms": 5, "segment.ms": 7}}})

    result = admin.alter_configs(
        [topic_resource("t", {"retention.ms": ("DELETE", None), "segment.bytes": (AlterConfigOp.SET, 1000)})]
    )

    described = admin.describe_configs([topic_resource("t")])["topic"]["t"]
    assert result == {"topic": {"t": "OK"}}
    assert {name: entry["value"] for name, entry in described.items()} == {"segment.ms": "7", "segment.bytes": "1000"}


def test_lists_are_appended_to_and_subtracted_from(admin: KafkaAdminClient) -> None:
    """Lists are appended to and subtracted from."""
    admin.create_topics(["t"])

    admin.alter_configs([topic_resource("t", {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})])
    admin.alter_configs([topic_resource("t", {"cleanup.policy": (3, "delete")})])

    described = admin.describe_configs([topic_resource("t")])["topic"]["t"]
    assert described["cleanup.policy"]["value"] == "compact"


def test_validate_only_changes_no_setting(admin: KafkaAdminClient) -> None:
    """Validate only changes no setting."""
    admin.create_topics(["t"])

    admin.alter_configs([topic_resource("t", {"retention.ms": 5})], validate_only=True)

    assert admin.describe_configs([topic_resource("t")])["topic"]["t"] == {}


def test_a_bad_value_is_in_the_result_or_raised(admin: KafkaAdminClient) -> None:
    """A bad value is in the result or raised."""
    admin.create_topics(["t"])
    bad = [topic_resource("t", {"retention.ms": "soon"})]

    assert admin.alter_configs(bad)["topic"]["t"].startswith("InvalidConfigurationError: ")
    with pytest.raises(InvalidConfigurationError):
        admin.alter_configs(bad, raise_errors=True)


@pytest.mark.parametrize("name", ["retention.m", "flush.ms"])
def test_an_unknown_setting_is_refused(admin: KafkaAdminClient, name: str) -> None:
    """An unknown setting is refused."""
    admin.create_topics(["t"])

    with pytest.raises(IllegalArgumentError, match="unrecognized topic setting"):
        admin.alter_configs([topic_resource("t", {name: 1})])


def test_settings_of_the_server_cannot_be_altered(admin: KafkaAdminClient) -> None:
    """Settings of the server cannot be altered."""
    with pytest.raises(InvalidRequestError, match=r"server\.properties"):
        admin.alter_configs([ConfigResource("broker", "1", {"num.partitions": 3})])


def test_resetting_gives_defaults_back(admin: KafkaAdminClient) -> None:
    """Resetting gives defaults back."""
    admin.create_topics({"t": {"configs": {"retention.ms": 5, "segment.ms": 7}}})

    admin.reset_configs([topic_resource("t", ["segment.ms"])])
    partly = list(admin.describe_configs([topic_resource("t")])["topic"]["t"])
    admin.reset_configs([topic_resource("t")])

    assert partly == ["retention.ms"]
    assert admin.describe_configs([topic_resource("t")])["topic"]["t"] == {}


def test_what_has_settings_is_listed(admin: KafkaAdminClient) -> None:
    """What has settings is listed."""
    admin.create_topics(["t"])

    assert admin.list_config_resources() == {"topic": ["t"], "broker": ["1"], "group": []}
    assert admin.list_config_resources(["topic"]) == {"topic": ["t"]}


# --- groups ----------------------------------------------------------------------------------------


def test_groups_are_listed_with_their_state(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Groups are listed with their state."""
    admin.create_topics(["t"])
    commit_row(cluster, 0, group="idle")
    roster = Roster(generation=1, members={"m": Member(member_id="m")})
    cluster.groups.transact(lambda s: [roster_row(s.seq + 1, "busy", roster)])
    cluster.leases.renew("busy", "m")

    assert admin.list_consumer_groups() == [("busy", "consumer"), ("idle", "consumer")]
    assert [g["group_id"] for g in admin.list_groups(states_filter=["stable"])] == ["busy"]


def test_committed_offsets_are_listed(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Committed offsets are listed."""
    admin.create_topics(["t"])
    commit_row(cluster, 5, group="g")
    where, other = TopicPartition("t", 0), TopicPartition("t", 1)

    assert admin.list_consumer_group_offsets("g") == {where: OffsetAndMetadata(5, "", -1)}
    assert admin.list_group_offsets(["g"]) == {"g": {where: OffsetAndMetadata(5, "", -1)}}
    assert admin.list_consumer_group_offsets("g", [other]) == {other: OffsetAndMetadata(-1)}


def test_offsets_of_an_earlier_life_of_a_topic_are_not_listed(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Offsets of an earlier life of a topic are not listed."""
    admin.create_topics(["t"])
    commit_row(cluster, 5, group="g", topic_id="of an earlier life")

    assert admin.list_consumer_group_offsets("g") == {}


# --- the client ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["create_acls", "describe_acls", "alter_replica_log_dirs", "describe_features"],
)
def test_what_does_not_exist_here_says_so(admin: KafkaAdminClient, method: str) -> None:
    """What does not exist here says so."""
    with pytest.raises(UnsupportedVersionError, match=method):
        getattr(admin, method)([])


def test_each_root_is_a_broker(cluster: Cluster, admin: KafkaAdminClient) -> None:
    """Each root is a broker."""
    described = admin.describe_cluster()

    assert described["controller_id"] == 1
    assert ",".join(b["host"] for b in described["brokers"]) == cluster.root
    assert [b["is_fenced"] for b in described["brokers"]] == [False] * len(described["brokers"])


def test_an_election_that_is_not_needed_is_said_and_no_error(admin: KafkaAdminClient) -> None:
    """As in Kafka: the preferred replica leads already."""
    admin.create_topics({"t": {"num_partitions": 2}})

    found = admin.elect_leaders("PREFERRED", ["t"])

    (topic,) = found["replica_election_results"]
    assert [(p["partition_id"], p["error_code"]) for p in topic["partition_result"]] == [(0, 84), (1, 84)]
    with pytest.raises(IllegalArgumentError, match="election_type must be"):
        admin.elect_leaders(7)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {"no": [0]})


def test_reassignments_are_answered_by_partition(admin: KafkaAdminClient) -> None:
    """With the class of an error, or None."""
    admin.create_topics([NewTopic("t", replica_assignments={0: [1], 1: [1]})])
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)

    assert admin.alter_partition_reassignments({t0: [1], t1: [1]}) == {t0: None, t1: None}
    assert admin.alter_partition_reassignments({t0: [1]}) == {t0: InvalidReplicationAssignmentError}
    assert admin.alter_partition_reassignments({t0: [99], t1: [99]})[t0] is InvalidReplicationAssignmentError
    assert admin.alter_partition_reassignments({t0: None, t1: None})[t0] is NoReassignmentInProgressError
    assert admin.list_partition_reassignments() == {}
    for wrong in ([], ["1"]):
        with pytest.raises(ValueError, match="replicas"):
            admin.alter_partition_reassignments({t0: wrong})  # type: ignore[dict-item]


def test_a_closed_client_refuses_calls(cluster: Cluster) -> None:
    """A closed client refuses calls."""
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        pass
    admin.close()

    with pytest.raises(IllegalStateError):
        admin.list_topics()


def test_an_unknown_setting_of_the_client_names_the_nearest(cluster: Cluster) -> None:
    """An unknown setting of the client names the nearest."""
    with pytest.raises(KafkaConfigurationError, match="did you mean 'client_id'"):
        KafkaAdminClient(bootstrap_servers=cluster, clientid="me")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "setting",
    [{"request_timeout_ms": float("nan")}, {"request_timeout_ms": -1}, {"client_id": ""}, {"sasl_mechanism": "PLAIN"}],
)
def test_a_bad_setting_of_the_client_is_refused(cluster: Cluster, setting: dict[str, Any]) -> None:
    """A bad setting of the client is refused."""
    with pytest.raises(KafkaConfigurationError):
        KafkaAdminClient(bootstrap_servers=cluster, **setting)


def test_settings_without_effect_are_named_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Settings without effect are named once."""
    with caplog.at_level(logging.INFO):
        KafkaAdminClient(bootstrap_servers=cluster, request_timeout_ms=5, retry_backoff_ms=1)

    assert caplog.messages == ["kafkalike-admin: settings without effect here: request_timeout_ms, retry_backoff_ms"]
