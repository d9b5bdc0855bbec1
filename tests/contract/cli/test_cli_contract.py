"""What the commands say and refuse, in-process, over a cluster in memory and one on Delta tables."""

import io
import json
import re
import shlex
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.cli.app import COMMANDS, FIRST, run
from kafkalike.cli.environment import Environment
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import RecordBatch
from tests.tools.kinds import only_in_memory


@dataclass
class Done:
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command against the cluster."""

    def call(*args: str, stdin: bytes = b"") -> Done:
        capsys.readouterr()
        stdout = io.BytesIO()
        code = run(args, Environment(cluster=cluster, stdin=io.BytesIO(stdin), stdout=stdout))
        out, err = capsys.readouterr()
        return Done(code, stdout.getvalue().decode() + out, err)

    return call


@pytest.fixture
def orders(cluster: Cluster) -> None:
    """A topic of two partitions: times 100, 300, 200 in partition 0, nothing in partition 1."""
    cluster.create_topic("orders", 2, {})
    batch = RecordBatch()
    for at in (100, 300, 200):
        batch.add(0, b"k", b"v", at)
    cluster.log("orders").append(batch)


# --- kafkalike, without arguments --------------------------------------------------------------------


def test_no_arguments_show_ten_examples_that_fit_a_terminal(cli: Cli) -> None:
    done = cli()

    examples = [example for rows in FIRST.values() for example, _ in rows]
    assert (done.code, done.err, len(examples)) == (0, "", 10)
    assert all(example in done.out for example in examples)
    assert max(map(len, done.out.splitlines())) <= 80


def test_examples_of_the_overview_run_in_their_order(cli: Cli) -> None:
    """The console's options alone are checked: it serves until it is stopped."""
    codes = {}
    for example, _ in (row for rows in FIRST.values() for row in rows):
        words = shlex.split(example.rpartition("| ")[2])[1:]
        more = {"console-consumer": ["--max-messages", "1"], "ui": ["--help"]}.get(words[0], [])
        codes[words[0]] = cli(*words, *more, stdin=b"hello\n").code

    assert codes == dict.fromkeys(codes, 0)
    assert len(codes) == 10


# --- get-offsets -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("time", "lines"),
    [
        ("latest", "orders:0:3\norders:1:0\n"),
        ("-1", "orders:0:3\norders:1:0\n"),
        ("earliest", "orders:0:0\norders:1:0\n"),
        ("-2", "orders:0:0\norders:1:0\n"),
        ("-4", "orders:0:0\norders:1:0\n"),
        ("max-timestamp", "orders:0:1\n"),
        ("-3", "orders:0:1\n"),
        ("150", "orders:0:1\n"),
        ("301", ""),
        ("latest-tiered", ""),
    ],
)
def test_offsets_are_printed_for_every_form_of_time(cli: Cli, time: str, lines: str) -> None:
    """Partitions without an answer are left out, as in Kafka."""
    assert cli("get-offsets", "--topic", "orders", "--time", time) == Done(0, lines, "")


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("args", "lines"),
    [
        (("--partitions", "1"), "orders:1:0\n"),
        (("--topic-partitions", "ord.*:0"), "orders:0:3\n"),
        (("--topic-partitions", ":1-"), "orders:1:0\n"),
        (("--topic-partitions", "x,orders:-1"), "orders:0:3\n"),
        (("--topic-partitions", "orders:0-1"), "orders:0:3\n"),
    ],
)
def test_offsets_of_chosen_partitions_are_printed(cli: Cli, args: tuple[str, ...], lines: str) -> None:
    """Every form of pattern."""
    assert cli("get-offsets", *args).out == lines


@pytest.mark.usefixtures("orders")
def test_no_partition_that_matches_is_an_error(cli: Cli) -> None:
    """The words are Kafka's."""
    message = "Error: Could not match any topic-partitions with the specified filters\n"

    assert cli("get-offsets", "--topic", "nothing") == Done(1, "", message)


# --- delete-records ----------------------------------------------------------------------------------


@only_in_memory("cluster")
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [], "version": 2}',
        '{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}',
    ],
)
def test_a_malformed_file_of_offsets_is_one_line_of_error(cli: Cli, tmp_path: Path, content: str) -> None:
    """Nothing is deleted by a file that is not understood."""
    (tmp_path / "offsets.json").write_text(content)

    done = cli("delete-records", "--offset-json-file", str(tmp_path / "offsets.json"))

    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


# --- topics and configs ------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("report", "lines"),
    [
        ("--under-replicated-partitions", 0),
        ("--unavailable-partitions", 0),
        ("--under-min-isr-partitions", 0),
        ("--at-min-isr-partitions", 2),
        ("--topics-with-overrides", 0),
    ],
)
def test_reports_of_replicas_say_what_is_true(cli: Cli, cluster: Cluster, report: str, lines: int) -> None:
    """No partition lacks a replica; a single one is the minimum of one; this topic has no setting of its own."""
    spare = len(cluster.replication.replicas("orders").isr) > 1

    done = cli("topics", "--describe", report)

    assert (done.code, done.out.count("\n")) == (0, 0 if spare else lines)


@pytest.mark.usefixtures("orders")
def test_a_topic_is_described_by_its_id(cli: Cli, cluster: Cluster) -> None:
    """As printed by describe itself, in Kafka's 22 characters, and as tables have it."""
    topic_id = cluster.topic("orders").topic_id
    (shown,) = re.findall(r"TopicId: ([\w-]{22})\t", cli("topics", "--describe", "--topic", "orders").out)

    assert urlsafe_b64decode(f"{shown}==").hex() == topic_id.replace("-", "")
    assert "Topic: orders" in cli("topics", "--describe", "--topic-id", topic_id).out
    assert "Topic: orders" in cli("topics", "--describe", "--topic-id", shown).out
    assert cli("topics", "--describe", "--topic-id", "x").err == "Error: TopicId 'x' does not exist as expected\n"


def test_a_name_whose_metrics_could_collide_is_warned_of(cli: Cli) -> None:
    """In Kafka's words and place."""
    warned = cli("topics", "--create", "--topic", "a.b")

    assert warned.out.startswith("WARNING: Due to limitations in metric names, topics with a period ('.')")
    assert warned.out.endswith("\nCreated topic a.b.\n")
    assert cli("topics", "--create", "--topic", "a-b").out == "Created topic a-b.\n"


@pytest.mark.usefixtures("orders")
def test_only_matching_topics_are_listed(cli: Cli, cluster: Cluster) -> None:
    """The expression must match the whole name; commas mean "or"."""
    cluster.create_topic("orders-old", 1, {})
    cluster.create_topic("payments", 1, {})

    assert cli("topics", "--list", "--topic", "orders").out == "orders\n"
    assert cli("topics", "--list", "--topic", "orders, pay.*").out == "orders\npayments\n"
    assert cli("topics", "--list", "--topic", "nothing") == Done(0, "", "")


@pytest.mark.usefixtures("orders")
def test_settings_of_all_topics_are_described(cli: Cli) -> None:
    """Without a name, every topic; with --all every setting."""
    done = cli("configs", "--describe", "--entity-type", "topics", "--all")

    assert done.out.startswith("All configs for topic orders are:\n")
    assert "  retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.ms=604800000}\n" in done.out


@pytest.mark.usefixtures("orders")
def test_settings_are_taken_from_a_file(cli: Cli, cluster: Cluster, tmp_path: Path) -> None:
    """--add-config-file reads .properties."""
    (tmp_path / "topic.properties").write_text("retention.ms = 5\ncleanup.policy=compact,delete\n")

    cli("configs", "--alter", "--topic", "orders", "--add-config-file", str(tmp_path / "topic.properties"))

    assert cluster.topic("orders").configs == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


# --- console-consumer --------------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_records_are_printed(cli: Cli) -> None:
    """With a separator of the user's, and no value."""
    done = cli(
        "console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "3",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.key=true",
        "--formatter-property", "print.value=false", "--formatter-property", "key.separator=|",
        "--formatter-property", "line.separator=;",
    )  # fmt: skip

    assert done == Done(0, "Offset:0|k;Offset:1|k;Offset:2|k;", "Processed a total of 3 messages\n")


@pytest.mark.usefixtures("orders")
def test_the_noop_formatter_prints_nothing(cli: Cli) -> None:
    """It counts only."""
    done = cli(
        "console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "3",
        "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter",
    )  # fmt: skip

    assert done == Done(0, "", "Processed a total of 3 messages\n")


# --- dump-log and verify -----------------------------------------------------------------------------


@pytest.mark.usefixtures("orders")
def test_records_are_dumped_up_to_a_number_of_bytes(cli: Cli) -> None:
    """--max-bytes stops after the record that reaches it."""
    done = cli("dump-log", "--topic", "orders", "--print-data-log", "--skip-record-metadata", "--max-bytes", "3")

    assert [line for line in done.out.splitlines() if line.startswith("|")] == ["| key: k payload: v"] * 2


@pytest.mark.usefixtures("orders")
def test_a_sound_cluster_is_verified_as_json(cli: Cli) -> None:
    """What was looked at is counted."""
    done = cli("verify", "--json")

    assert done.code == 0
    assert json.loads(done.out) == {
        "sound": True,
        "topics": 1,
        "partitions": 2,
        "segments": 1,
        "records": 3,
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


# --- usage -------------------------------------------------------------------------------------------


@pytest.fixture
def usage(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command against an empty cluster in memory."""

    def call(*args: str) -> Done:
        capsys.readouterr()
        code = run(args, Environment(cluster=MemoryCluster(), stdin=io.BytesIO(), stdout=io.BytesIO()))
        return Done(code, *capsys.readouterr())

    return call


@pytest.mark.parametrize(
    "args",
    [
        "nonsense",
        "topics",
        "topics --list --create --topic t",
        "topics --create",
        "topics --alter --topic t",
        "topics --list --partitions 3",
        "topics --create --topic t --if-exists",
        "topics --create --topic t --config retention.ms",
        "topics --create --topic t --partitions 2 --replica-assignment 0:1",
        "topics --create --topic t --partitions x",
        "topics --list --zookeeper localhost:2181",
        "topics --list --topic [",
        "topics --describe --unavailable-partitions --topics-with-overrides",
        "topics --describe --topic t --topic-id x",
        "topics --delete --topic " + "x" * 1025,
        "configs",
        "configs --describe",
        "configs --describe --alter --topic t",
        "configs --describe --topic t --broker 1",
        "configs --describe --entity-type users",
        "configs --describe --topic t --add-config a=b",
        "configs --alter --topic t",
        "configs --alter --topic t --add-config a",
        "configs --alter --entity-type topics --add-config a=b",
        "configs --alter --topic t --add-config a=b --all",
        "configs --describe --user u",
        "configs --describe --topic t --bootstrap-controller x",
        "get-offsets --time soon",
        "get-offsets --time -6",
        "get-offsets --partitions a",
        "get-offsets --topic t --topic-partitions t:0",
        "get-offsets --topic-partitions t:a",
        "delete-records",
        "delete-records --offset-json-file nowhere.json",
        "console-consumer",
        "console-consumer --topic t --include t",
        "console-consumer --topic t --offset 5",
        "console-consumer --topic t --partition 0 --group g",
        "console-consumer --topic t --partition 0 --offset soon",
        "console-consumer --topic t --partition 0 --offset 5 --from-beginning",
        "console-consumer --include t --partition 0",
        "console-consumer --topic t --formatter com.example.MyFormatter",
        "console-consumer --topic t --property print.kei=true",
        "console-consumer --topic t --value-deserializer com.example.MyDeserializer",
        "console-consumer --topic t --enable-systest-events",
        "console-consumer --topic t --from-beginning --consumer-property auto.offset.reset=latest",
        "console-consumer --topic t --group a --consumer-property group.id=b",
        "console-producer",
        "console-producer --topic t --line-reader com.example.MyReader",
        "console-producer --topic t --property parse.kei=true",
        "console-producer --topic t --property key.separator=",
        "console-producer --topic t --producer-property acks",
        "dump-log",
        "dump-log --topic t --index-sanity-check",
        "dump-log --topic t --offsets-decoder",
        "demo --rows 0",
    ],
)
def test_wrong_usage_is_one_line_and_the_exit_code_of_kafkas_tools(usage: Cli, args: str) -> None:
    """What is wrong is said in one line that names the command's help; commands that Kafka lacks end with 2."""
    done = usage(*args.split(" "))

    assert (done.code, done.out) == (2 if args.startswith(("demo", "nonsense")) else 1, "")
    assert done.err.startswith("Error: ")
    assert done.err.endswith("--help')\n")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "meant"),
    [("topcis --list", "topics"), ("maintian", "maintain"), ("dlq repaly", "replay"), ("schemas lst", "list")],
)
def test_a_misspelt_command_names_the_nearest(usage: Cli, args: str, meant: str) -> None:
    """Those in groups of commands, too; one that is like none is named alone."""
    assert f"did you mean {meant!r}?" in usage(*args.split()).err
    assert usage("kafka-topics.sh", "--lits").code == 1
    assert usage("xyzzy").err == "Error: No such command 'xyzzy' (see 'kafkalike --help')\n"


def test_a_misspelt_flag_names_the_nearest(usage: Cli) -> None:
    """A typing error is easy to mend."""
    assert "--topic" in usage("topics", "--list", "--topik", "t").err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(usage: Cli, command: str) -> None:
    """People read examples."""
    done = usage(command, "--help")

    example = " ".join(done.out.rpartition("Example: ")[2].split())
    assert done.code == 0
    assert f"kafkalike {command}" in example


def test_help_lists_all_commands(usage: Cli) -> None:
    done = usage("--help")

    assert done.code == 0
    assert all(f"  {command} " in done.out for command in COMMANDS)


@pytest.mark.parametrize("args", [("--version",), ("topics", "--version")])
def test_the_version_is_printed(usage: Cli, args: tuple[str, ...]) -> None:
    """As Kafka's tools do."""
    done = usage(*args)

    assert (done.code, bool(done.out.strip())) == (0, True)


@pytest.mark.parametrize("name", ["kafka-topics", "kafka-topics.sh", "topics"])
def test_kafkas_names_of_commands_are_understood(usage: Cli, name: str) -> None:
    """Scripts need not be rewritten."""
    assert usage(name, "--list").code == 0


@pytest.mark.parametrize(
    "args",
    [
        "topics --describe --partition-size-limit-per-response 5",
    ],
)
def test_a_flag_without_effect_is_named(usage: Cli, args: str) -> None:
    """On standard error, so that output stays what scripts expect."""
    done = usage(*args.split(" "))

    assert done.code == 0
    assert done.err.startswith("Warning: --")
    assert "has no effect: " in done.err
