"""`kafkalike console-consumer` as a user types it."""

import signal
import subprocess
from collections.abc import Callable

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.model.structs import TopicPartition
from tests.tools import warm

Run = Callable[..., subprocess.CompletedProcess[str]]
Fill = Callable[..., None]


def test_values_are_printed_line_by_line(kafkalike: Run, fill: Fill) -> None:
    """Bytes as they are; null as `null`; the count on standard error."""
    fill("t", [(b"k", b"one", 1), (b"k", None, 2), (None, "drei ä".encode(), 3)])

    done = kafkalike("console-consumer", "--topic", "t", "--from-beginning", "--timeout-ms", "200")

    assert done.stdout == "one\nnull\ndrei ä\n"
    assert (done.stderr, done.returncode) == ("Processed a total of 3 messages\n", 0)


def test_every_column_is_printed_in_kafkas_order(kafkalike: Run, fill: Fill) -> None:
    """Timestamp, partition, offset, headers, key and value between tabs."""
    fill("t", [(b"k", b"v", 1_700_000_000_000)], headers=[("h1", b"v1"), ("h2", None)])
    fill("t", [(None, b"w", 5)])
    wanted = ("timestamp", "partition", "offset", "headers", "key")

    done = kafkalike(
        "console-consumer",
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        "2",
        *(arg for column in wanted for arg in ("--property", f"print.{column}=true")),
    )

    assert done.stdout == (
        "CreateTime:1700000000000\tPartition:0\tOffset:0\th1:v1,h2:null\tk\tv\n"
        "CreateTime:5\tPartition:0\tOffset:1\tNO_HEADERS\tnull\tw\n"
    )


def test_a_partition_is_read_from_an_offset(kafkalike: Run, fill: Fill) -> None:
    """--partition and --offset, a number or a word."""
    fill("t", [(None, b"zero", 1), (None, b"one", 1), (None, b"two", 1)], partitions=2, partition=1)
    common = ("console-consumer", "--topic", "t", "--partition", "1", "--timeout-ms", "100")

    assert kafkalike(*common, "--offset", "1").stdout == "one\ntwo\n"
    assert kafkalike(*common, "--offset", "earliest", "--max-messages", "1").stdout == "zero\n"
    assert kafkalike(*common).stdout == ""


def test_topics_are_chosen_by_expression(kafkalike: Run, fill: Fill) -> None:
    """--include must match whole names."""
    for topic in ("orders", "orders-old", "payments"):
        fill(topic, [(None, topic.encode(), 1)])

    done = kafkalike("console-consumer", "--include", "orders|pay.*", "--from-beginning", "--timeout-ms", "300")

    assert sorted(done.stdout.split()) == ["orders", "payments"]


def test_numbers_are_printed_by_their_deserializer(kafkalike: Run, fill: Fill) -> None:
    """Java's class names are understood."""
    fill("t", [((7).to_bytes(8, "big"), b"v", 1)])

    done = kafkalike(
        "console-consumer",
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        "1",
        "--property",
        "print.key=true",
        "--key-deserializer",
        "org.apache.kafka.common.serialization.LongDeserializer",
    )

    assert done.stdout == "7\tv\n"


def test_a_record_that_cannot_be_printed_ends_or_is_skipped(kafkalike: Run, fill: Fill) -> None:
    """--skip-message-on-error says which record, and goes on."""
    fill("t", [(b"short", b"a", 1), ((7).to_bytes(8, "big"), b"b", 1)])
    common = (
        "console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "2", "--property", "print.key=true",
        "--key-deserializer", "LongDeserializer",
    )  # fmt: skip

    ended = kafkalike(*common)
    skipped = kafkalike(*common, "--skip-message-on-error")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert (skipped.returncode, skipped.stdout) == (0, "7\tb\n")
    assert "t-0 at offset 0" in skipped.stderr


def test_a_group_goes_on_where_it_stopped(kafkalike: Run, fill: Fill, root: str) -> None:
    """What was printed is committed, what was not is not."""
    fill("t", [(None, b"one", 1), (None, b"two", 1), (None, b"three", 1)])
    common = ("console-consumer", "--topic", "t", "--group", "g", "--from-beginning", "--timeout-ms", "200")

    first = kafkalike(*common, "--max-messages", "2")
    committed = KafkaAdminClient(bootstrap_servers=root).list_consumer_group_offsets("g")
    second = kafkalike(*common)

    assert first.stdout == "one\ntwo\n"
    assert committed[TopicPartition("t", 0)].offset == 2
    assert second.stdout == "three\n"


def test_reading_without_a_group_leaves_no_group(kafkalike: Run, fill: Fill, root: str) -> None:
    """A look must not show in the list of groups."""
    fill("t", [(None, b"one", 1)])

    kafkalike("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "1")

    assert KafkaAdminClient(bootstrap_servers=root).list_groups() == []


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_consumer_commits_what_it_printed(
    environ: dict[str, str], fill: Fill, root: str, ending: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGTERM are quiet: no traceback, the count, an exit code that says which."""
    fill("t", [(None, b"one", 1), (None, b"two", 1)])
    args = ("console-consumer", "--topic", "t", "--group", "g", "--from-beginning")

    with warm.start(
        "kafkalike", *args, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(ending)
        _, stderr = process.communicate(timeout=30)

    committed = KafkaAdminClient(bootstrap_servers=root).list_consumer_group_offsets("g")
    assert printed == ["one\n", "two\n"]
    assert (stderr, process.returncode) == ("Processed a total of 2 messages\n", code)
    assert committed[TopicPartition("t", 0)].offset == 2


def test_a_reader_that_goes_away_is_no_traceback(environ: dict[str, str], fill: Fill) -> None:
    """`kafkalike console-consumer … | head -1` ends quietly."""
    fill("t", [(None, b"x" * 1000, 1)] * 1000)
    args = ("console-consumer", "--topic", "t", "--from-beginning")

    with warm.start("kafkalike", *args, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        stderr = process.stderr.read()

    assert b"Traceback" not in stderr
    assert b"Error" not in stderr
    assert process.returncode == 141


def test_a_topic_that_does_not_exist_is_waited_for(kafkalike: Run) -> None:
    """As in Kafka, a consumer may come before its topic."""
    done = kafkalike("console-consumer", "--topic", "later", "--timeout-ms", "100")

    assert done.returncode in {0, 1}
    assert "Traceback" not in done.stderr
