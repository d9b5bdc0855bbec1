"""`kafkalike consumer-groups`: what it prints and refuses, over a cluster in memory and one on Delta tables."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.cli.groups.reset_plan import parse_duration
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.group_rows import roster_row
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.cli import Done, call
from tests.tools.kinds import only_in_memory

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_MEMBERS = "\nConsumer group 'g' has no active members.\n"
HEADS = (
    "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
    "HOST            CLIENT-ID"
)


@pytest.fixture
def groups(cluster: Cluster) -> Cluster:
    """Group `g` has committed 2 of t-0, whose records 1 to 3 have the times 100 s, 300 s and 200 s; t-1 is empty."""
    cluster.create_topic("t", 2, {})
    batch = RecordBatch()
    for at in (50_000, 100_000, 300_000, 200_000):
        batch.add(0, b"k", b"v", at)
    cluster.log("t").append(batch)
    cluster.move_log_start("t", {0: 1}, "test", "r")
    KafkaAdminClient(bootstrap_servers=cluster).alter_group_offsets("g", {P0: OffsetAndMetadata(2)})
    return cluster


def live(cluster: Cluster, group: str = "g", *, static: bool = False) -> None:
    """Let two live members be in the group: one owns both partitions, one waits for the second of them."""
    alice = Member(
        member_id="alice-0001",
        group_instance_id="one" if static else None,
        client_id="alice",
        client_host="host1",
        subscription=("t",),
        protocols=("range",),
        assignment=(P0, P1),
        target=(P0,),
    )
    bob = replace(alice, member_id="bob-0002", group_instance_id=None, client_id="bob", assignment=(), target=(P1,))
    members = {member.member_id: member for member in (alice, bob)}
    roster = Roster(generation=3, protocol="range", members=members)
    cluster.groups.transact(lambda state: [roster_row(state.seq + 1, group, roster)])
    for member_id in members:
        cluster.leases.renew(group, member_id)


def run(cluster: Cluster, args: str, *more: str, clock: ManualClock | None = None) -> Done:
    command = partial(call, cluster, "consumer-groups", *args.split(), *more)
    return command() if clock is None else command(clock=clock)


def table(text: str) -> list[list[str]]:
    """Cells of what was printed."""
    return [line.split() for line in text.splitlines() if line]


# --- list and describe -------------------------------------------------------------------------


def test_groups_are_listed(groups: Cluster) -> None:
    """Names alone, or with state and type, or only those of a state."""
    live(groups, "h")

    assert run(groups, "--list") == Done(0, "g\nh\n", "")
    assert run(groups, "--list --state").out == (
        "GROUP                     STATE\n"
        "g                         Empty\n"
        "h                         PreparingRebalance\n"
    )  # fmt: skip
    assert table(run(groups, "--list --type --state stable,empty").out) == [
        ["GROUP", "TYPE", "STATE"],
        ["g", "Classic", "Empty"],
    ]
    assert run(groups, "--list --state nonsense").code == 1


def test_a_group_without_members_is_described_in_kafkas_columns(groups: Cluster) -> None:
    """An empty line, the heads, a line for each committed partition; the notice is on standard error."""
    done = run(groups, "--describe --group g")

    row = (
        "g               t               0          2               4               2               -               "
        "-               -"
    )
    assert done == Done(0, f"\n{HEADS}\n{row}\n", NO_MEMBERS)


def test_a_groups_name_cannot_break_a_table(groups: Cluster) -> None:
    """Nor reach the terminal: what is not printable is escaped."""
    KafkaAdminClient(bootstrap_servers=groups).alter_group_offsets("a\n\x1b[2Jb", {P0: OffsetAndMetadata(2)})

    for args in ("--list", "--list --state", "--describe --all-groups", "--describe --all-groups --lag"):
        assert "a\\n\\x1b[2Jb" in run(groups, args).out


def test_members_of_an_empty_group_are_the_heads_alone(groups: Cluster) -> None:
    """As Kafka prints them."""
    done = run(groups, "--describe --group g --members")

    assert (done.code, done.err) == (0, NO_MEMBERS)
    assert table(done.out) == [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]]


def test_partitions_of_members_come_first(groups: Cluster) -> None:
    """With whose they are; what was never committed has no lag. --verbose shows the epoch."""
    live(groups)
    alice = ["alice-0001", "host1", "alice"]

    done = run(groups, "--describe --group g --offsets")

    assert table(done.out)[1:] == [["g", "t", "0", "2", "4", "2", *alice], ["g", "t", "1", "-", "0", "-", *alice]]
    assert done.err == "\nWarning: Consumer group 'g' is rebalancing.\n"
    verbose = table(run(groups, "--describe --group g --verbose").out)
    assert (verbose[0][3], verbose[1][3]) == ("LEADER-EPOCH", "-")


@pytest.mark.parametrize("report", ["", " --offsets", " --verbose", " --lag"])
def test_an_offset_beyond_the_log_end_is_no_lag_of_zero(groups: Cluster, report: str) -> None:
    """The log has lost what the group has read: that is said, and there is no number for it."""
    KafkaAdminClient(bootstrap_servers=groups).alter_group_offsets("g", {P1: OffsetAndMetadata(7)})

    done = run(groups, f"--describe --group g{report}")

    heads, *rows = table(done.out)
    lags = {row[heads.index("PARTITION")]: row[heads.index("LAG")] for row in rows}
    assert (lags["0"], lags["1"]) == ("2", "-")
    assert "'g' has committed offset 7 in t-1, and the log ends at 0" in done.err
    assert "t-0" not in done.err


def test_members_are_described(groups: Cluster) -> None:
    """How many partitions each has; --verbose says which, and which it is to have."""
    live(groups)

    plain = table(run(groups, "--describe --group g --members").out)
    verbose = table(run(groups, "--describe --group g --members --verbose").out)

    assert plain == [
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "alice-0001", "host1", "alice", "2"],
        ["g", "bob-0002", "host1", "bob", "0"],
    ]
    assert verbose[0][5:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert [row[5:] for row in verbose[1:]] == [["0", "t:0,1", "3", "t:0"], ["0", "-", "3", "t:1"]]


def test_static_names_have_a_column_when_there_are_any(groups: Cluster) -> None:
    """Empty for a dynamic member."""
    live(groups, static=True)

    rows = table(run(groups, "--describe --group g --members").out)

    assert rows[0][2] == "GROUP-INSTANCE-ID"
    assert rows[1][2] == "one"


def test_the_state_of_a_group_is_described(groups: Cluster) -> None:
    """The coordinator is the root."""
    live(groups)

    rows = table(run(groups, "--describe --group g --state --verbose").out)

    assert rows[0][-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert rows[1] == ["g", groups.root, "(1)", "range", "PreparingRebalance", "3", "3", "2"]


def test_a_group_that_does_not_exist_is_an_error(groups: Cluster) -> None:
    """Others are described all the same."""
    done = run(groups, "--describe --group nobody --group g")

    assert (done.code, done.err) == (1, f"Error: Consumer group 'nobody' does not exist.\n{NO_MEMBERS}")
    assert table(done.out)[1][:2] == ["g", "t"]


def test_lag_is_told_in_offsets_records_and_seconds(groups: Cluster) -> None:
    """Per partition, topic and group; a group that does not move never catches up."""
    groups.create_topic("u", 1, {})
    admin = KafkaAdminClient(bootstrap_servers=groups)
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(0), P1: OffsetAndMetadata(0), TopicPartition("u", 0): OffsetAndMetadata(0)})  # fmt: skip  # noqa: E501

    heads, *rows = table(run(groups, "--describe --group g --lag").out)

    assert heads[5:9] == ["LAG", "RECORD-LAG", "SECONDS-BEHIND", "WAITING-S"]
    assert [row[:8] for row in rows] == [
        ["g", "t", "0", "0", "4", "4", "3", "250.000"],
        ["g", "t", "1", "0", "0", "0", "0", "0.000"],
        ["g", "t", "*", "-", "-", "4", "3", "250.000"],
        ["g", "u", "0", "0", "0", "0", "0", "0.000"],
        ["g", "*", "*", "-", "-", "4", "3", "250.000"],
    ]
    assert [row[-1] for row in rows] == ["-", "0.000", "-", "0.000", "-"]


# --- reset -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "offset"),
    [
        ("--to-earliest", 1),
        ("--to-latest", 4),
        ("--to-current", 2),
        ("--to-offset 3", 3),
        ("--shift-by 1", 3),
        ("--shift-by -1", 1),
        ("--to-datetime 1970-01-01T00:01:40.001", 2),
        ("--to-datetime 1970-01-01T02:01:40.001+02:00", 2),
        ("--to-datetime 2100-01-01T00:00:00Z", 4),
        ("--by-duration PT15M", 2),
        ("--by-duration P9000D", 1),
    ],
)
def test_every_scenario_finds_its_offset(groups: Cluster, scenario: str, offset: int) -> None:
    """Log start 1, committed 2, log end 4; the clock shows 1,001 s. A dry run changes nothing, --execute does."""
    clock = ManualClock(1_001)
    admin = KafkaAdminClient(bootstrap_servers=groups)

    dry = run(groups, f"--reset-offsets --group g --topic t:0 --dry-run {scenario}", clock=clock)
    assert (dry.code, dry.err) == (0, "")
    assert table(dry.out) == [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], ["g", "t", "0", str(offset)]]
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(2)}

    done = run(groups, f"--reset-offsets --group g --topic t:0 --execute {scenario}", clock=clock)
    assert done == dry
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(offset)}


def test_a_reset_without_execute_is_a_dry_run_and_says_so(groups: Cluster) -> None:
    """Kafka's warning."""
    done = run(groups, "--reset-offsets --group g --all-topics --to-latest")

    assert done.err == "WARN: No action will be performed as the --execute option is missing.\n"
    assert table(done.out)[1:] == [["g", "t", "0", "4"]]


def test_offsets_outside_the_log_are_brought_into_it(groups: Cluster) -> None:
    """With a warning for each."""
    done = run(groups, "--reset-offsets --group g --topic t:0 --to-offset 99 --dry-run")
    assert done.err == "WARN: New offset (99) is higher than latest offset for topic partition t-0. Value will be set to 4\n"  # fmt: skip  # noqa: E501

    done = run(groups, "--reset-offsets --group g --topic t:0 --shift-by -99 --dry-run")
    assert done.err == "WARN: New offset (-97) is lower than earliest offset for topic partition t-0. Value will be set to 1\n"  # fmt: skip  # noqa: E501
    assert table(done.out)[1:] == [["g", "t", "0", "1"]]


def test_an_exported_plan_can_be_taken_back_in(groups: Cluster, tmp_path: Path) -> None:
    """For one group, and with a column more for several."""
    admin = KafkaAdminClient(bootstrap_servers=groups)
    one = run(groups, "--reset-offsets --group g --topic t --to-current --export --dry-run")
    both = run(groups, "--reset-offsets --group g --group h,i --topic t --to-latest --export --dry-run")
    assert (one.out, both.out) == ("t,0,2\nt,1,0\n", 'g,t,0,4\ng,t,1,0\n"h,i",t,0,4\n"h,i",t,1,0\n')
    (tmp_path / "one.csv").write_text(one.out)
    (tmp_path / "both.csv").write_text(both.out)

    run(groups, "--reset-offsets --execute --group g --group h,i --from-file", str(tmp_path / "both.csv"))
    ends = {P0: OffsetAndMetadata(4), P1: OffsetAndMetadata(0)}
    assert admin.list_group_offsets(["g", "h,i"]) == {"g": ends, "h,i": ends}

    run(groups, "--reset-offsets --execute --group g --from-file", str(tmp_path / "one.csv"))
    assert admin.list_consumer_group_offsets("g", [P0]) == {P0: OffsetAndMetadata(2)}


@only_in_memory("cluster")
@pytest.mark.parametrize(
    "content",
    ["t,0", "t,0,-1", "t,zero,1", "h,t,0,1", "g,t,0,1,2", "t,0,1\nt,0,2", "\ufeff", "t;0;1", "t,²,1"],
)
def test_a_file_that_is_not_understood_changes_nothing(groups: Cluster, tmp_path: Path, content: str) -> None:
    """Exit code 2 and one line that names the line."""
    (tmp_path / "plan.csv").write_text(f"t,1,0\n{content}\n", encoding="utf-8")

    done = run(groups, "--reset-offsets --execute --group g --from-file", str(tmp_path / "plan.csv"))

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "line " in done.err
    admin = KafkaAdminClient(bootstrap_servers=groups)
    assert admin.list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(2)}


def test_a_group_with_members_is_not_reset(groups: Cluster) -> None:
    """Others are; the exit code tells."""
    live(groups, "busy")

    done = run(groups, "--reset-offsets --group busy --group g --topic t:0 --to-earliest --execute")

    state = "but the current state is PreparingRebalance."
    assert done.code == 1
    assert done.err == f"Error: Assignments can only be reset if the group 'busy' is inactive, {state}\n"
    assert table(done.out)[1:] == [["g", "t", "0", "1"]]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--topic t --shift-by 1", "Cannot shift offset for partition t-1"),
        ("--topic t:7 --to-latest", "t-7 does not exist"),
        ("--topic nowhere --to-latest", "nowhere"),
    ],
)
def test_what_cannot_be_reset_changes_nothing(groups: Cluster, args: str, words: str) -> None:
    """Not even the partitions that could be."""
    done = run(groups, f"--reset-offsets --execute --group g {args}")

    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert KafkaAdminClient(bootstrap_servers=groups).list_consumer_group_offsets("g") == {P0: OffsetAndMetadata(2)}


# --- delete ------------------------------------------------------------------------------------


def test_groups_are_deleted(groups: Cluster) -> None:
    """Those with members stay; each is told."""
    live(groups, "busy")

    done = run(groups, "--delete --group g --group busy --group nobody")

    assert (done.code, done.err) == (1, "Error: Deletion of some consumer groups failed:\n")
    assert done.out == (
        "* Group 'busy' could not be deleted due to: NonEmptyGroupError\n"
        "* Group 'nobody' could not be deleted due to: GroupIdNotFoundError\n"
        "\n"
        "These consumer groups were deleted successfully: 'g'\n"
    )
    assert run(groups, "--list").out == "busy\n"


def test_all_groups_are_deleted_at_once(groups: Cluster) -> None:
    """Kafka's words."""
    assert run(groups, "--delete --all-groups").out == "Deletion of requested consumer groups ('g') was successful.\n"


def test_offsets_are_deleted(groups: Cluster) -> None:
    """Of a topic, or of some of its partitions."""
    done = run(groups, "--delete-offsets --group g --topic t:0")

    assert done.out.startswith("Request succeeded for deleting offsets from group g.\n")
    assert (done.code, table(done.out)[1:]) == (0, [["TOPIC", "PARTITION", "STATUS"], ["t", "0", "Successful"]])
    again = run(groups, "--delete-offsets --group g --topic t")
    assert (again.code, again.err) == (1, "Error: Consumer group 'g' does not exist.\n")


def test_offsets_of_a_topic_that_is_read_are_kept(groups: Cluster) -> None:
    """And a topic that does not exist has a line of its own."""
    live(groups)

    done = run(groups, "--delete-offsets --group g --topic t:0 --topic nowhere")

    assert (done.code, done.err) == (1, "Error: Encountered some partition-level error, see the follow-up details.\n")
    assert [row[:3] for row in table(done.out)[1:]] == [["nowhere", "-", "Error:"], ["t", "0", "Error:"]]


# --- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        "",
        "--list --describe",
        "--list --group g",
        "--describe",
        "--describe --group g --all-groups",
        "--describe --group g --members --offsets",
        "--describe --group g --state stable",
        "--describe --group g --topic t",
        "--describe --group g --to-latest",
        "--delete",
        "--delete --group g --topic t",
        "--delete-offsets --group g",
        "--delete-offsets --group g --group h --topic t",
        "--delete-offsets --group g --topic t:x",
        "--reset-offsets --group g --topic t",
        "--reset-offsets --group g --to-latest",
        "--reset-offsets --topic t --to-latest",
        "--reset-offsets --group g --topic t --all-topics --to-latest",
        "--reset-offsets --group g --topic t --to-latest --to-earliest",
        "--reset-offsets --group g --topic t --to-latest --dry-run --execute",
        "--reset-offsets --group g --topic t --to-offset -1",
        "--reset-offsets --group g --topic t --to-datetime yesterday",
        "--reset-offsets --group g --topic t --to-datetime 2026-01-01",
        "--reset-offsets --group g --topic t --to-datetime 1969-12-31T23:59:59.999",
        "--reset-offsets --group g --topic t --by-duration 5m",
        "--reset-offsets --group g --topic t --by-duration P",
        "--reset-offsets --group g --topic t --by-duration P1DT",
        "--reset-offsets --group g --topic t --by-duration P99999999999D",
        "--reset-offsets --group g --topic t --from-file nowhere.csv",
        "--reset-offsets --group g --from-file nowhere.csv",
        "--reset-offsets --group g --topic t:1, --to-latest",
        "--list --zookeeper localhost",
        "--validate-regex x",
    ],
)
def test_wrong_usage_is_one_line(args: str) -> None:
    """Exit code 1, as of Kafka's own tool."""
    done = run(MemoryCluster(), args)

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


@given(st.integers(0, 999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 999))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int, ms: int) -> None:
    """Whatever their parts are."""
    text = f"P{days}DT{hours}H{minutes}M{seconds}.{ms:03d}S"

    assert parse_duration(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + ms
