"""`kafkalike console-producer` and the two perf tests as a user types them."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.connect import connect

Run = Callable[..., subprocess.CompletedProcess[str]]
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def records(root: str, topic: str) -> list[Record]:
    """Everything in a topic, by partition and offset."""
    log = connect(root).log(topic)
    log.refresh()
    found: list[Record] = []
    for partition in log.info.partitions:
        reader = log.reader(partition, 0)
        while chunk := reader.read(1_000_000):
            columns = chunk.columns()
            headers = columns.headers or [[] for _ in columns.keys]
            found += zip(columns.keys, columns.values, headers, strict=True)
    return found


def test_each_line_is_a_record(kafkalike: Run, root: str) -> None:
    """Bytes that are not UTF-8 and empty lines as well; the topic is created."""
    done = kafkalike("console-producer", "--topic", "t", stdin=b"one\n\xff\n\nlast without line end")

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert [value for _, value, _ in records(root, "t")] == [b"one", b"\xff", b"", b"last without line end"]


def test_headers_key_and_value_are_taken_from_a_line(kafkalike: Run, root: str) -> None:
    """Kafka's reader properties, a null marker, and a header without value."""
    properties = {
        "parse.key": "true",
        "key.separator": "|",
        "parse.headers": "true",
        "headers.delimiter": ";",
        "null.marker": "NULL",
    }
    args = [arg for item in properties.items() for arg in ("--property", "=".join(item))]

    done = kafkalike("console-producer", "--topic", "t", *args, stdin=b"h:1,h:NULL;k|v\nNULL;k|NULL\nNULL;NULL|v\n")

    assert (done.stderr, done.returncode) == ("", 0)
    assert records(root, "t") == [
        (b"k", b"v", [("h", b"1"), ("h", None)]),
        (b"k", None, []),
        (None, b"v", []),
    ]


def test_a_line_without_separator_is_an_error_that_names_the_line(kafkalike: Run) -> None:
    """The words are Kafka's."""
    done = kafkalike("console-producer", "--topic", "t", "--property", "parse.key=true", stdin=b"a\tb\nc\n")

    assert done.returncode == 1
    assert done.stderr == "Error: No key separator found on line number 2: 'c'\n"


def test_settings_come_from_flags_properties_and_files(kafkalike: Run, root: str, tmp_path: Path) -> None:
    """A flag wins over --producer-property, which wins over the file."""
    (tmp_path / "producer.properties").write_text("acks=1\nlinger.ms=5\ncompression.type=gzip\n")

    done = kafkalike(
        "console-producer", "--topic", "t", "--producer.config", "producer.properties", "--producer-property",
        "compression.type=lz4", "--request-required-acks", "all", "--timeout", "0", "--sync", stdin=b"a\nb\n",
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert len(records(root, "t")) == 2


@pytest.mark.parametrize(
    ("setting", "words"),
    [("lingr.ms=5", "did you mean 'linger_ms'"), ("acks=2", "acks"), ("sasl.mechanism=PLAIN", "no network connection")],
)
def test_a_bad_setting_is_one_line_of_error(kafkalike: Run, setting: str, words: str) -> None:
    """Before anything is read or sent."""
    done = kafkalike("console-producer", "--topic", "t", "--producer-property", setting, stdin=b"a\n")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_record_that_is_refused_fails_the_command(kafkalike: Run, root: str) -> None:
    """Each failure is a line, and the exit code says that something was not sent."""
    connect(root).create_topic("t", 1, {"max.message.bytes": "100"})

    done = kafkalike("console-producer", "--topic", "t", stdin=b"x" * 500 + b"\n")

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_what_is_typed_is_read_back(kafkalike: Run) -> None:
    """Producer and consumer understand each other."""
    kafkalike("console-producer", "--topic", "t", stdin=b"one\ntwo\n")

    done = kafkalike("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "2")

    assert done.stdout == "one\ntwo\n"


def test_sending_is_measured_in_kafkas_words(kafkalike: Run, root: str) -> None:
    """One summary line, with several settings behind --producer-props."""
    done = kafkalike(
        "producer-perf-test", "--topic", "t", "--num-records", "500", "--record-size", "20", "--throughput", "-1",
        "--producer-props", "acks=all", "linger.ms=5",
    )  # fmt: skip

    number = r"\d+\.\d\d"
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        rf"500 records sent, \d+\.\d{{6}} records/sec \({number} MB/sec\), {number} ms avg latency, {number} ms max "
        r"latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n",
        done.stdout,
    )
    assert {len(value or b"") for _, value, _ in records(root, "t")} == {20}
    assert len(records(root, "t")) == 500


def test_payloads_come_from_a_file_or_count_up(kafkalike: Run, root: str, tmp_path: Path) -> None:
    """A summary without warm-up follows when one was asked for."""
    (tmp_path / "payloads").write_bytes(b"a\nb\n")

    done = kafkalike("producer-perf-test", "--topic", "f", "--num-records", "20", "--payload-file", "payloads")
    counted = kafkalike(
        "producer-perf-test", "--topic", "n", "--num-records", "3", "--payload-monotonic", "--warmup-records", "1"
    )

    assert "Number of messages read: 2\n" in done.stdout
    assert {value for _, value, _ in records(root, "f")} == {b"a", b"b"}
    assert [value for _, value, _ in records(root, "n")] == [b"0", b"1", b"2"]
    assert "2 steady state records sent, " in counted.stdout


def test_reading_is_measured_in_kafkas_columns(kafkalike: Run) -> None:
    """Header and one line of numbers."""
    kafkalike("producer-perf-test", "--topic", "t", "--num-records", "500", "--record-size", "20")

    done = kafkalike("consumer-perf-test", "--topic", "t", "--messages", "500", "--print-metrics")

    header, numbers = done.stdout.splitlines()[:2]
    fields = numbers.split(", ")
    assert (done.returncode, done.stderr) == (0, "")
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert len(fields) == 10
    assert (fields[2], fields[4]) == (f"{500 * 20 / 1024 / 1024:.4f}", "500")


def test_too_few_records_are_a_warning(kafkalike: Run) -> None:
    """The words are Kafka's."""
    kafkalike("producer-perf-test", "--topic", "t", "--num-records", "5", "--record-size", "20")

    done = kafkalike("consumer-perf-test", "--topic", "t", "--num-records", "6", "--timeout", "100", "--hide-header")

    assert done.stdout.splitlines()[0] == (
        "WARNING: Exiting before consuming the expected number of messages: timeout (100 ms) exceeded. You can use "
        "the --timeout option to increase the timeout."
    )
    assert done.stdout.splitlines()[1].split(", ")[4] == "5"
