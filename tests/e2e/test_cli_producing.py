"""`kafkalike console-producer` as a user types it."""

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
