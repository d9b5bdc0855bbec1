"""What Spark before 4.2 asks of a source: the newest offsets, without the start of the batch; and what it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalike.connect import connect
from kafkalike.errors import DataLossError, UnsupportedVersionError
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.format.stream_reader import UnlimitedReader, unmarked
from kafkalike.spark.jvm.jars import delta_jar_conf
from kafkalike.spark.jvm.spark_version import need
from tests.tools.records import fill

EARLIEST = {"startingOffsets": "earliest"}


def reader(root: str, **given: str) -> UnlimitedReader:
    return UnlimitedReader(parse_options({"kafka.bootstrap.servers": root, "subscribe": "t", **given}))


def values(source: UnlimitedReader, start: Any, end: Any) -> list[str]:
    found = [batch for part in source.partitions(start, end) for batch in source.read(part)]
    return [row["value"].decode() for batch in found for row in batch.to_pylist()]


def test_batches_follow_each_other_and_an_idle_topic_gives_the_same_offsets(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "a", (1, "b"))
    source = reader(root, **EARLIEST)
    start = source.initialOffset()

    first = source.latestOffset()

    assert sorted(values(source, start, first)) == ["a", "b"]
    assert source.latestOffset() == first
    fill(cluster, "t", "c")
    second = source.latestOffset()
    assert unmarked(second) == {"t": {"0": 2, "1": 1}}
    assert values(source, first, second) == ["c"]


def test_restarted_query_does_not_know_the_start_and_goes_on_after_the_checkpoint(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    fill(cluster, "t", "a")
    source = reader(root, **EARLIEST)
    checkpoint = source.latestOffset() if source.initialOffset() else None
    restarted = reader(root, **EARLIEST)
    assert restarted.latestOffset() == checkpoint
    fill(cluster, "t", "b")

    end = restarted.latestOffset()

    assert values(restarted, checkpoint, end) == ["b"]


def test_topic_that_was_created_again_is_reported(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    fill(cluster, "t", "a")
    source = reader(root, **EARLIEST)
    source.initialOffset()
    checkpoint = source.latestOffset()
    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {})
    fill(cluster, "t", "other")
    restarted = reader(root, **EARLIEST)

    with pytest.raises(DataLossError):
        restarted.partitions(checkpoint, restarted.latestOffset())


def test_limits_are_refused_by_name(root: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"limit of offsets per trigger needs Spark 4\.2 or newer"):
        reader(root, maxOffsetsPerTrigger="5")


def test_error_of_a_missing_feature_names_both_versions_and_a_way_out() -> None:
    text = str(need("a sink", "4.1", "use ks.write_stream"))

    assert text.startswith("a sink needs Spark 4.1 or newer, and this is 4.")
    assert text.endswith(": use ks.write_stream")


@pytest.mark.parametrize("minor", ["4.0", "4.1"])
def test_each_spark_gets_the_delta_that_was_made_for_it(
    minor: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalike.spark.jvm.jars.ARTIFACT", f"io.delta:delta-spark_{minor}_2.13")

    assert delta_jar_conf(tmp_path)["spark.jars.packages"] == f"io.delta:delta-spark_{minor}_2.13:4.4.0"
