"""`kafkalike topics` and `configs` as a user types them."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.connect import connect

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_topic_is_created_listed_described_altered_and_deleted(kafkalike: Run, root: str) -> None:
    """The life of a topic, with Kafka's messages."""
    created = kafkalike("topics", "--create", "--topic", "orders", "--partitions", "2", "--config", "retention.ms=5000")
    kafkalike("topics", "--create", "--topic", "a")
    listed = kafkalike("topics", "--list")
    altered = kafkalike("topics", "--alter", "--topic", "orders", "--partitions", "3")
    described = kafkalike("topics", "--describe", "--topic", "ord.*")
    deleted = kafkalike("topics", "--delete", "--topic", "orders")

    topic_id = described.stdout.split("\t")[1].removeprefix("TopicId: ")
    assert (created.stdout, created.stderr, created.returncode) == ("Created topic orders.\n", "", 0)
    assert listed.stdout == "a\norders\n"
    assert (altered.stdout, altered.returncode) == ("", 0)
    assert described.stdout == (
        f"Topic: orders\tTopicId: {topic_id}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=5000\n"
        + "".join(
            f"\tTopic: orders\tPartition: {p}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
            for p in range(3)
        )
    )
    assert (deleted.stdout, deleted.returncode) == ("", 0)
    assert list(connect(root).topics()) == ["a"]


def test_an_existing_topic_is_an_error_unless_allowed(kafkalike: Run) -> None:
    """--if-not-exists makes creating repeatable."""
    kafkalike("topics", "--create", "--topic", "t")

    again = kafkalike("topics", "--create", "--topic", "t")
    allowed = kafkalike("topics", "--create", "--topic", "t", "--if-not-exists")

    assert (again.returncode, again.stderr) == (1, "Error: topic 't' already exists\n")
    assert (allowed.returncode, allowed.stdout, allowed.stderr) == (0, "", "")


@pytest.mark.parametrize("action", [("--delete",), ("--describe",), ("--alter", "--partitions", "3")])
def test_a_topic_that_does_not_exist_is_an_error_unless_allowed(kafkalike: Run, action: tuple[str, ...]) -> None:
    """The words are Kafka's."""
    kafkalike("topics", "--create", "--topic", "another")
    missing = kafkalike("topics", *action, "--topic", "t")
    allowed = kafkalike("topics", *action, "--topic", "t", "--if-exists")

    assert (missing.returncode, missing.stderr) == (1, "Error: Topic 't' does not exist as expected\n")
    assert (allowed.returncode, allowed.stdout, allowed.stderr) == (0, "", "")


def test_more_replicas_than_roots_are_refused(kafkalike: Run) -> None:
    """A copy-pasted command of a cluster of three brokers says why it cannot be."""
    done = kafkalike("topics", "--create", "--topic", "t", "--replication-factor", "3")

    assert done.returncode == 1
    assert done.stderr == "Error: Replication factor: 3 larger than available brokers: 1.\n"


def test_settings_are_altered_and_described(kafkalike: Run) -> None:
    """Lists in brackets, one setting deleted, sources named."""
    kafkalike("topics", "--create", "--topic", "t", "--config", "segment.ms=7")

    altered = kafkalike(
        "configs",
        "--alter",
        "--topic",
        "t",
        "--add-config",
        "cleanup.policy=[compact,delete],retention.ms=5",
        "--delete-config",
        "segment.ms",
    )
    described = kafkalike("configs", "--describe", "--entity-type", "topics", "--entity-name", "t")

    assert (altered.stdout, altered.stderr) == ("Completed updating config for topic t.\n", "")
    assert described.stdout == (
        "Dynamic configs for topic t are:\n"
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}\n"
    )


def test_settings_of_the_server_come_from_its_file(kafkalike: Run, root: str) -> None:
    """server.properties in the root counts, and is named as the source."""
    Path(root).mkdir()
    (Path(root) / "server.properties").write_text("num.partitions=4\nlog.retention.hours=2\n")
    kafkalike("topics", "--create", "--topic", "t")

    topic = kafkalike("configs", "--describe", "--topic", "t", "--all").stdout
    broker = kafkalike("configs", "--describe", "--broker", "1", "--all").stdout
    refused = kafkalike("configs", "--alter", "--broker", "1", "--add-config", "num.partitions=5")

    assert (
        "  retention.ms=7200000 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.hours=2, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}\n"
    ) in topic
    assert "  num.partitions=4 sensitive=false synonyms={STATIC_BROKER_CONFIG:num.partitions=4, " in broker
    assert connect(root).topic("t").num_partitions == 4
    assert (refused.returncode, "server.properties" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--add-config", "retention.m=5"), "did you mean 'retention.ms'?"),
        (("--add-config", "retention.ms=soon"), "a whole number"),
        (("--add-config", "flush.ms=5"), "no broker process"),
        (("--delete-config", "retention.ms"), "Invalid config(s): retention.ms"),
    ],
)
def test_a_bad_setting_is_one_line_of_error(kafkalike: Run, args: tuple[str, ...], words: str) -> None:
    """Nothing is changed, and the line says why."""
    kafkalike("topics", "--create", "--topic", "t")

    done = kafkalike("configs", "--alter", "--topic", "t", *args)

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_metadata_commands_start_no_spark(environ: dict[str, str], root: str) -> None:
    """Listing, creating and describing must be quick: no JVM, and nothing of PySpark is imported."""
    code = (
        "import sys; from kafkalike.cli import main\n"
        "for args in (['topics', '--create', '--topic', 't'], ['topics', '--list'], ['topics', '--describe'],\n"
        "             ['configs', '--describe', '--topic', 't'], ['get-offsets'], ['verify'],\n"
        "             ['dump-log', '--topic', 't']):\n"
        "    assert main(args) == 0, args\n"
        "print(sorted(name for name in ('pyspark', 'py4j', 'delta') if name in sys.modules))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"


def test_looking_does_not_import_pandas(environ: dict[str, str], root: str) -> None:
    """It would double the time of a command."""
    connect(root).create_topic("t", 1, {})
    code = (
        "import sys; from kafkalike.cli import main\n"
        "for args in (['topics', '--list'], ['topics', '--describe'], ['get-offsets']):\n"
        "    assert main(args) == 0, args\n"
        "    print(args, 'pandas' in sys.modules)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)

    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines() if line.startswith("[")] == ["False"] * 3


def test_the_root_is_named_by_flag_variable_or_file(kafkalike: Run, tmp_path: Path, root: str) -> None:
    """The flag wins over the file, the file over the variable."""
    other, third = str(tmp_path / "other"), str(tmp_path / "third")
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={other}\nclient.id=me\n")

    kafkalike("topics", "--create", "--topic", "by-variable")
    kafkalike("topics", "--create", "--topic", "by-file", "--command-config", "client.properties")
    kafkalike(
        "topics", "--create", "--topic", "by-flag", "--command-config", "client.properties", "--bootstrap-server", third
    )

    assert [list(connect(r).topics()) for r in (root, other, third)] == [["by-variable"], ["by-file"], ["by-flag"]]


def test_a_setting_of_a_secure_cluster_is_refused_by_name(kafkalike: Run, tmp_path: Path) -> None:
    """Security settings must not be ignored."""
    (tmp_path / "client.properties").write_text("security.protocol=SASL_SSL\n")
    kafkalike("topics", "--create", "--topic", "t")

    done = kafkalike("topics", "--list", "--command-config", "client.properties")

    assert done.returncode == 1
    assert "security_protocol" in done.stderr


def test_a_root_that_cannot_be_written_is_one_line_of_error(kafkalike: Run, tmp_path: Path) -> None:
    """A file where the root should be is named, without a traceback."""
    (tmp_path / "file").write_text("")

    done = kafkalike("topics", "--create", "--topic", "t", "--bootstrap-server", str(tmp_path / "file"))

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_debug_shows_the_traceback(kafkalike: Run) -> None:
    """--debug may stand behind the command."""
    done = kafkalike("topics", "--describe", "--topic", "t", "--debug")

    assert done.returncode == 1
    assert "Traceback" in done.stderr
