"""The consuming jobs with `--errors-tolerance all`: bad records go to the dead-letter topic, once, with the offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import TopicPartition
from kafkalike.cli.jobs.job import run
from kafkalike.connect import open_cluster
from kafkalike.log.cluster.cluster import Cluster
from tests.e2e.test_jobs import module
from tests.tools.letters import lettered
from tests.tools.records import fill

pytestmark = pytest.mark.timeout(300)

JSON = ["--topic", "orders", "--value-format", "json", "--schema", "id BIGINT", "--errors-tolerance", "all"]
Job = Callable[..., int]


@pytest.fixture
def job(spark: SparkSession, root: str) -> Job:
    """Runs a job in the tests' own Spark."""
    return lambda name, *args: run(module(name).main, ["--bootstrap-server", root, *map(str, args)])


@pytest.fixture
def orders(root: str) -> Cluster:
    cluster = open_cluster(root)
    cluster.create_topic("orders", 1, {"retention.ms": "-1"})
    fill(cluster, "orders", b'{"id": 1}', b"bad", b'{"id": 3}')
    return cluster


def rows(out: Path) -> list[int]:
    lines = [json.loads(line) for file in out.glob("*.json") for line in file.read_text().splitlines()]
    return sorted(line["value"]["id"] for line in lines)


def test_consume_commits_letters_and_offsets_together(
    job: Job, orders: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next run begins behind them; one with nothing to read is fine."""
    out = tmp_path / "out"
    first = job("consume", *JSON, "--group", "g", "--json", "--format", "json", out)
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    fill(orders, "orders", b"worse", b'{"id": 5}')
    second = job("consume", *JSON, "--group", "g", "--format", "json", out)
    third = job("consume", *JSON, "--group", "g", "--format", "json", out)

    assert (first, second, third) == (0, 0, 0)
    assert (facts["records"], facts["dead letters"], facts["committed"]) == (2, 1, True)
    assert rows(out) == [1, 3, 5]
    assert lettered(orders) == [(0, 1), (0, 3)]
    assert orders.groups.refresh().group("g").offsets[TopicPartition("orders", 0)].position.offset == 5


def test_stream_consume_writes_letters_beside_its_rows(job: Job, orders: Cluster, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    args = [*JSON, "--checkpoint", checkpoint, "--available-now", "--format", "json", out]
    codes = [job("stream_consume", *args)]
    fill(orders, "orders", b"worse", b'{"id": 5}')
    codes.append(job("stream_consume", *args))

    assert codes == [0, 0]
    assert rows(out) == [1, 3, 5]
    assert lettered(orders) == [(0, 1), (0, 3)]


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("consume", JSON, "needs --group"),
        ("consume", [*JSON, "--group", "g", "--malformed", "null"], "exclude each other"),
        ("consume", ["--topic", "t", "--errors-deadletterqueue-topic-name", "x"], "needs --errors-tolerance all"),
        ("stream_consume", [*JSON[:2], "--checkpoint", "c", "--errors-tolerance", "all", "--value-format", "binary"],
         "needs a --value-format that decodes values"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_named(
    job: Job, name: str, args: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(name, *args) == 2
    assert why in capsys.readouterr().err
