"""Options of the format's sink: what a user gives in, checked settings, a warning or a named refusal out."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from kafkalike.errors import IllegalArgumentError, UnsafeStorageError, UnsupportedCodecError
from kafkalike.model.record_batch import TxnId
from kafkalike.spark.format.sink import BatchWriter, parse_batch, parse_stream

ROOT = {"kafka.bootstrap.servers": "/data/log", "topic": "t"}
STREAM = {**ROOT, "checkpointLocation": "/c"}


def test_defaults_are_those_of_the_function() -> None:
    """Everything that may be left out, left out."""
    made = parse_batch({"kafka.bootstrap.servers": "/data/log"})

    assert (made.root, made.topic, made.codec, made.timeout_ms, made.txn) == ("/data/log", None, "none", 120_000, None)


def test_names_count_in_any_case() -> None:
    """Spark hands them over in lower case."""
    made = parse_batch(
        {
            "KAFKA.bootstrap.servers": "/data/log",
            "Topic": "t",
            "kafka.Compression.type": "lz4",
            "kafka.delivery.timeout.MS": "7",
            "txnappid": "job",
            "TXNVERSION": "0",
        }
    )

    assert (made.topic, made.codec, made.timeout_ms, made.txn) == ("t", "lz4", 7, TxnId("job", 0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": " "}, "must name the cluster's root"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer is not supported"),
        ({"kafka.partitioner.class": "x"}, "give rows a column partition"),
        ({"kafka.transactional.id": "x"}, "txnAppId"),
        ({"kafka.delivery.timeout.ms": "0"}, "must be a positive whole number"),
        ({"txnVersion": "1"}, "go together"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId must not be empty"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion must be a whole number from 0"),
        ({"useTimestampColumn": "1"}, "useTimestampColumn must be true or false, not '1'"),
        ({"includeHeaders": "yes"}, "includeHeaders must be true or false"),
        ({"tpic": "t"}, "unknown option tpic.*did you mean.*topic"),
    ],
)
def test_a_wrong_option_of_a_batch_is_refused(given: dict[str, str], said: str) -> None:
    """By its name, with what to do."""
    with pytest.raises(IllegalArgumentError, match=said):
        parse_batch(ROOT | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"checkpointLocation": ""}, "checkpointLocation must be given to the writer.*write_stream"),
        ({"checkpointLocation": "hdfs://host/c"}, "not in a folder of this machine.*write_stream"),
        ({"txnAppId": "a", "txnVersion": "1"}, "txnVersion belongs to batch queries"),
        ({"txnAppId": ""}, "txnAppId must not be empty"),
    ],
)
def test_a_wrong_option_of_a_stream_is_refused(given: dict[str, str], said: str) -> None:
    """Where the query's checkpoint cannot be read, its batches cannot be told apart."""
    with pytest.raises(IllegalArgumentError, match=said):
        parse_stream(STREAM | given)


def test_an_unknown_codec_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(UnsupportedCodecError, match="none, gzip, snappy, lz4"):
        parse_batch(ROOT | {"kafka.compression.type": "brotli"})


def test_options_that_change_nothing_are_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A producer's settings are taken, as a job for Kafka has them."""
    with caplog.at_level(logging.WARNING):
        parse_batch(ROOT | {"kafka.acks": "all", "includeheaders": "true", "kafka.linger.ms": "5"})

    assert [record.getMessage().split(" has no effect")[0] for record in caplog.records] == [
        "option kafka.acks",
        "option includeHeaders",
        "option kafka.linger.ms",
    ]


def test_a_root_that_can_only_be_read_is_refused() -> None:
    """Before a task has run."""
    options = parse_batch(ROOT | {"kafka.bootstrap.servers": "hdfs://host/log"})

    with pytest.raises(UnsafeStorageError, match=r"hdfs://host/log is in HDFS"):
        BatchWriter(options, StructType().add("value", StringType()), overwrite=False)


@pytest.mark.parametrize("parse", [parse_batch, parse_stream])
def test_who_asks_an_object_store_is_no_option(parse: Callable[[dict[str, str]], object]) -> None:
    """Spark shows options in its plans; the error names the option, and not its value."""
    given = ROOT | {"storage.options.account_key": "canary", "checkpointLocation": "/checkpoint"}

    with pytest.raises(IllegalArgumentError, match=r"storage\.options\.account_key .*register_format") as refused:
        parse(given)

    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "place", ["s3a://bucket/checkpoint", "abfss://c@account.dfs.core.windows.net/x", "/c", "file:/c"]
)
def test_a_stream_keeps_its_checkpoint_on_this_machine_or_in_an_object_store(place: str) -> None:
    """Nobody is asked for it yet."""
    assert parse_stream(ROOT | {"checkpointLocation": place}).checkpoint == place


def test_what_sparks_sink_ignores_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint of a batch is warned about; a table has the options of the source as well, and its own."""
    given = ROOT | {"checkpointLocation": "/c", "subscribe": "t", "provider": "kafkalike", "truncate": "false"}

    with caplog.at_level(logging.WARNING):
        made = parse_batch(given)

    assert made.checkpoint is None
    assert [record.getMessage() for record in caplog.records] == [
        "option truncate has no effect: the format has no such option",
        "option checkpointLocation has no effect in a batch query, which has no checkpoint",
    ]


def test_stream_says_once_what_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark makes two writers for each batch; the query's name is Spark's own option."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    given = {
        "kafka.bootstrap.servers": "/root",
        "topic": "t",
        "queryname": "named",
        "kafka.linger.ms": "5",
        "checkpointLocation": str(tmp_path),
    }

    for _ in range(4):
        parse_stream(given)
    parse_stream({**given, "kafka.acks": "1"})

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "option kafka.linger.ms has no effect",
        "option kafka.linger.ms has no effect",
        "option kafka.acks has no effect",
    ]
