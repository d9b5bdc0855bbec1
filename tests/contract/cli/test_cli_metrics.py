"""`kafkalike metrics`: what a cluster's groups and topics look like to Prometheus and as JSON."""

import json
import platform
import re
import shutil
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafkalike import __version__
from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.group_lag import Lags
from kafkalike.admin.metrics.cluster_collector import ClusterCollector
from kafkalike.admin.testing import ManualClock
from kafkalike.cli.paths import CONF
from kafkalike.connect import connect
from kafkalike.consumer.share_consumer import KafkaShareConsumer
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.group_rows import roster_row
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.cli import call
from tests.tools.records import batch

P0 = TopicPartition("t", 0)
REQUESTS = "kafkalike_object_store_requests_total"
NO_TRANSACTIONS = {
    ("kafkalike_transactional_ids",): 0,
    ("kafkalike_transactions_open",): 0,
    ("kafkalike_transactions_unapplied",): 0,
    ("kafkalike_transactions_open_seconds_max",): 0,
    ("kafkalike_transactions_unapplied_seconds_max",): 0,
    ("kafkalike_transactions_total", "commit"): 0,
    ("kafkalike_transactions_total", "abort"): 0,
}


LATER = ManualClock(10_000_000)
"""When the members of a group are long gone."""
BROKERS = ("kafka_brokers",)
OF_REPLICAS = re.compile(
    r"kafkalike_(broker_up|replica_lag_\w+|topic_partition_under_min_isr)"
    r"|kafka_topic_partition_(leader|replicas|in_sync_replica|under_replicated_partition|leader_is_preferred)"
)
"""Metrics that a cluster of several roots has alone; `test_brokers.py` looks at them."""
OWN: dict[tuple[str, ...], float] = {
    BROKERS: 1,
    ("kafkalike_build_info", platform.python_version(), __version__): 1,
    ("kafkalike_scrape_errors_total",): 0,
}


@pytest.fixture
def groups(cluster: Cluster) -> Cluster:
    """Group `g` has read one of three records, of the times 1, 2 and 5 s; each is a segment. `dead` is no more."""
    cluster.create_topic("t", 2, {})
    for at in (1_000, 2_000, 5_000):
        batch = RecordBatch()
        batch.add(0, b"k", b"v", at)
        cluster.log("t").append(batch)
    KafkaAdminClient(bootstrap_servers=cluster).alter_group_offsets("g", {P0: OffsetAndMetadata(1)})
    dead = Roster(generation=1, members={"m": Member(member_id="m")})
    cluster.groups.transact(lambda state: [roster_row(state.seq + 1, "dead", dead)])
    return cluster


@pytest.fixture
def queue(groups: Cluster) -> Cluster:
    """Beside the groups, a share group that has read `t`."""
    with KafkaShareConsumer("t", bootstrap_servers=groups, group_id="q", share_auto_offset_reset="earliest") as worker:
        assert len(worker.poll(timeout_ms=10_000)) == 3
    return groups


def samples(text: str, leave_out: str = "kafkalike_append_") -> dict[tuple[str, ...], float]:
    """Values by name and labels, but for the process's appends, and its requests, which an object store has alone."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name != REQUESTS and not sample.name.startswith(leave_out) and not OF_REPLICAS.fullmatch(sample.name)
    }


def test_lag_is_measured_three_ways(groups: Cluster) -> None:
    """Under the names of kafka_exporter where it has them."""
    done = call(groups, "metrics", clock=LATER)

    found = samples(done.out)
    brokers = len(KafkaAdminClient(bootstrap_servers=groups).describe_cluster()["brokers"])
    assert found[BROKERS] == brokers
    found[BROKERS] = 1
    commits = found.pop(("kafkalike_topic_commits_total", "t"))
    assert commits >= 3
    assert found.pop(("kafkalike_topic_bytes", "t")) == found["kafka_topic_partition_bytes", "0", "t"]
    size = found.pop(("kafka_topic_partition_bytes", "0", "t"))
    assert (done.code, done.err, size > 0) == (0, "", True)
    where = ("g", "0", "t")
    assert found == {
        ("kafkalike_up",): 1,
        ("kafkalike_topic_up", "t"): 1,
        ("kafka_topic_partitions", "t"): 2,
        ("kafka_topic_partition_current_offset", "0", "t"): 3,
        ("kafka_topic_partition_current_offset", "1", "t"): 0,
        ("kafka_topic_partition_oldest_offset", "0", "t"): 0,
        ("kafka_topic_partition_oldest_offset", "1", "t"): 0,
        ("kafka_topic_partition_records", "0", "t"): 3,
        ("kafka_topic_partition_records", "1", "t"): 0,
        ("kafka_topic_partition_segments", "0", "t"): 3,
        ("kafka_topic_partition_segments", "1", "t"): 0,
        ("kafka_topic_partition_bytes", "1", "t"): 0,
        ("kafka_consumergroup_state", "g", "Empty"): 1,
        ("kafka_consumergroup_members", "g"): 0,
        ("kafka_consumergroup_generation", "g"): 0,
        ("kafka_consumergroup_lag_seconds_max", "g"): 4,
        ("kafka_consumergroup_current_offset", *where): 1,
        ("kafka_consumergroup_lag", *where): 2,
        ("kafka_consumergroup_lag_records", *where): 2,
        ("kafka_consumergroup_lag_seconds", *where): 4,
        ("kafka_consumergroup_waiting_seconds", *where): 9_999_998,
        ("kafka_consumergroup_waiting_seconds_max", "g"): 9_999_998,
        ("kafka_consumergroup_lag_sum", "g", "t"): 2,
        ("kafka_consumergroup_current_offset_sum", "g", "t"): 1,
        ("kafkalike_topic_records_written_total", "t"): 3,
        **OWN,
        **NO_TRANSACTIONS,
    }


def test_requests_are_counted_where_they_cost_money(groups: Cluster) -> None:
    """By kind, since the process began."""
    families = text_string_to_metric_families(call(groups, "metrics").out)

    found = {s.labels["kind"]: s.value for family in families for s in family.samples if s.name == REQUESTS}

    kinds = {"get", "head", "put", "list", "delete", "copy"}
    assert found.keys() == (kinds if groups.requests else set())
    assert all(0 < found[kind] <= groups.requests[kind] for kind in found.keys() & {"get", "put"})


def test_a_snapshot_holds_the_same_as_json(groups: Cluster) -> None:
    """By topic, group and partition, with sums."""
    found = json.loads(call(groups, "metrics", "--json", clock=LATER).out)

    lag = {"offsets": 2, "records": 2, "seconds": 4.0, "waiting_seconds": 9_999_998.0}
    assert found["cluster"] == groups.root
    (group,) = found["groups"].values()
    assert (group["state"], group["members"], group["lag"], group["topics"]["t"]["lag"]) == ("Empty", 0, lag, lag)
    partition = group["topics"]["t"]["partitions"]["0"]
    assert (partition["committed_offset"], partition["log_end_offset"], partition["lag"]) == (1, 3, lag)
    assert partition["catch_up_seconds"] is None
    topic = found["topics"]["t"]["partitions"]
    assert (topic["0"]["log_end_offset"], topic["0"]["newest_ms"], topic["1"]["newest_ms"]) == (3, 5_000, None)


def test_a_cluster_without_anything_is_up(cluster: Cluster) -> None:
    """No topics, no groups; only the root."""
    if cluster.store.coordination.reach == "machine":
        if "," in cluster.root:
            # Several roots are a cluster once something was written.
            cluster.create_topic("t", 1, {})
            cluster.delete_topic("t")
        else:
            Path(cluster.root).mkdir(exist_ok=True)
    brokers = len(KafkaAdminClient(bootstrap_servers=cluster).describe_cluster()["brokers"])
    assert samples(call(cluster, "metrics").out) == {
        ("kafkalike_up",): 1,
        **OWN,
        BROKERS: brokers,
        **NO_TRANSACTIONS,
    }
    assert json.loads(call(cluster, "metrics", "--json").out)["groups"] == {}


def test_a_root_that_is_not_there_or_gone_is_down(root: str, tmp_path: Path) -> None:
    """Never with the figures from before; maintenance says so as well."""
    cluster = connect(root)
    never = [call(cluster, command) for command in ("metrics", "maintain")]
    cluster.create_topic("t", 1, {})
    Path(root).rename(tmp_path / "elsewhere")
    Path(root).mkdir()
    gone = [call(cluster, command) for command in ("metrics", "maintain")]

    assert [done.code for done in never + gone] == [1, 1, 1, 1]
    down = {("kafkalike_up",): 0, **OWN, ("kafkalike_scrape_errors_total",): 1}
    assert samples(never[0].out) == samples(gone[0].out) == {name: n for name, n in down.items() if name != BROKERS}


@pytest.mark.parametrize("args", ["--json --port 1", "--port x", "--port 65536"])
def test_wrong_usage_is_one_line(cluster: Cluster, args: str) -> None:
    """Exit code 2."""
    done = call(cluster, "metrics", *args.split())

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("damage", ["gone", "truncated", "gone while it was open"])
def test_a_topic_whose_table_is_gone_or_damaged_has_no_figures_and_the_others_have(root: str, damage: str) -> None:
    """The old ones would hide it; also in a scrape right after it happened."""
    cluster = connect(root)
    for name in ("bad", "good"):
        cluster.create_topic(name, 1, {})
        for _ in range(2):
            cluster.log(name).append(batch("a"))
    admin = KafkaAdminClient(bootstrap_servers=cluster)
    for name in ("bad", "good"):
        admin.alter_group_offsets("g", {TopicPartition(name, 0): OffsetAndMetadata(1)})
    registry = CollectorRegistry()
    registry.register(ClusterCollector(admin, Lags(cluster, leave_out_damaged=True)))
    if damage == "gone while it was open":
        assert samples(generate_latest(registry).decode())["kafkalike_topic_up", "bad"] == 1

    if damage == "truncated":
        Path(root, "bad", "_delta_log", f"{2:020d}.json").write_bytes(b"")
    else:
        Path(root, "bad").rename(Path(root).parent / "elsewhere")

    found = samples(generate_latest(registry).decode())
    assert (found["kafkalike_up",], found["kafkalike_topic_up", "bad"], found["kafkalike_topic_up", "good"]) == (
        1,
        0,
        1,
    )
    assert {name for name, *labels in found if "bad" in labels} == {"kafkalike_topic_up", "kafka_topic_partitions"}
    assert found["kafka_consumergroup_lag", "g", "0", "good"] == 1
    assert found["kafka_topic_partition_current_offset", "0", "good"] == 2


# --- what reads them ---------------------------------------------------------------------------

NAMES = re.compile(r"\b(?:kafkalike|kafka)_\w+")
WORDS = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def scraped(cluster: Cluster) -> dict[str, set[str]]:
    """Labels of each metric of a cluster with a topic, a group and, as in an object store, requests."""
    text = call(cluster, "metrics", clock=LATER).out
    # Prometheus adds the name of the job that it has scraped.
    found = {REQUESTS: {"kind"}, "kafkalike_append_seconds_bucket": {"job"}, "kafkalike_append_seconds_count": {"job"}}
    found["kafkalike_append_failures_total"] = {"job"}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[tuple[str, set[str]]]:
    """PromQL of the alert rules and of the dashboard, and the labels that texts beside it show."""
    rules = [rule for group in yaml.safe_load((CONF / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    shown = [(rule["expr"], set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))) for rule in rules]
    panels = json.loads((CONF / "grafana-dashboard.json").read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    return shown + [(target["expr"], set(re.findall(r"{{(\w+)}}", target["legendFormat"]))) for target in targets]


def test_alerts_and_the_dashboard_ask_for_what_a_scrape_has(queue: Cluster) -> None:
    """Names of metrics, labels by which they are summed, labels in texts."""
    found = scraped(queue)

    asked = expressions()
    assert len(asked) > 20
    for expression, shown in asked:
        names = set(NAMES.findall(expression))
        labels = {label.strip() for words in WORDS.findall(expression) for label in words.split(",")}
        assert names, expression
        assert names <= found.keys(), expression
        assert labels | shown <= set.union(*(found[name] for name in names)), expression


def test_the_dashboard_shows_every_metric_of_topics_and_groups_once_or_its_sum(queue: Cluster) -> None:
    """A new metric wants a panel, or a line here that says why it has none."""
    without = {
        "kafka_brokers",
        "kafka_topic_partition_bytes",  # in kafkalike_topic_bytes
        "kafka_topic_partition_current_offset",  # in kafkalike_topic_records_written
        "kafka_topic_partition_oldest_offset",  # for look-ups
        "kafka_consumergroup_current_offset",  # in its sum
        "kafkalike_append_seconds_sum",  # its quantiles
        "kafka_consumergroup_generation",  # for look-ups
        "kafka_consumergroup_lag",  # in records
        "kafka_consumergroup_lag_seconds",  # the waiting time is what an alert asks for
        "kafka_consumergroup_lag_seconds_max",
        "kafka_consumergroup_state",  # for look-ups
        "kafka_consumergroup_waiting_seconds",  # its maximum
        "kafkalike_sharegroup_start_offset",  # for look-ups
        "kafkalike_transactional_ids",  # for look-ups
    }
    asked = {name for expression, _ in expressions() for name in NAMES.findall(expression)}

    found = {name for name in scraped(queue) if not OF_REPLICAS.fullmatch(name)}
    assert found - asked == without


def test_a_scrape_has_the_appends_of_the_process_that_made_them(tmp_path: Path) -> None:
    """As a histogram, and beside it those that failed."""
    before = samples(call(connect(str(tmp_path)), "metrics").out, "-")
    with KafkaProducer(bootstrap_servers=str(tmp_path)) as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number).get(60)
    log = connect(str(tmp_path)).log("orders")
    shutil.rmtree(tmp_path / "orders")
    with pytest.raises(KafkaError):
        log.append(batch(b"lost"), timeout_ms=100)

    found = samples(call(connect(str(tmp_path)), "metrics").out, "-")
    grown = {name: found[name] - before[name] for name in found if "kafkalike_append" in name[0]}
    assert grown["kafkalike_append_seconds_count",] == 3
    assert grown["kafkalike_append_seconds_bucket", "+Inf"] == 3
    assert grown["kafkalike_append_failures_total",] == 1
    assert found["kafkalike_append_seconds_sum",] > before["kafkalike_append_seconds_sum",]
