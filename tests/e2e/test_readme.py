"""The README's five minutes and the programs of exactly-once.md: blocks, run as they stand, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from tests.tools.blocks import PROJECT, blocks
from tests.tools.object_servers import S3, in_environment, running


def outputs_of(heading: str | None, folder: Path, more: Mapping[str, str], page: str = "README.md") -> list[str]:
    """What the blocks below a heading, or of a whole page, print; each must end well."""
    commands = {"python": [sys.executable, "-c"], "sh": ["bash", "-euc"]}
    return [ran([*commands[language], text], folder, more) for language, text in blocks(heading, page)]


def ran(command: list[str], folder: Path, more: Mapping[str, str]) -> str:
    """What a command prints; it must end well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **more}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_the_tour_runs_as_it_stands(tmp_path: Path) -> None:
    """Every block of the tour ends well in an empty folder, and they see each other's records."""
    python, spark, shell = outputs_of("Five minutes", tmp_path, {})

    assert "{'item': 'tea', 'price': 4}" in python
    assert "orders" in spark
    assert "billing" in spark
    assert "PartitionCount: 4" in shell
    assert "Processed a total of 3 messages" in shell


@pytest.mark.timeout(300)
def test_the_blocks_about_schemas_run_as_they_stand(tmp_path: Path) -> None:
    """The good record is read, and the bad one is a dead letter."""
    python, shell = outputs_of("Records with schemas", tmp_path, {})

    assert python.strip() == "[{'id': 7, 'euro': 4.5}]"
    assert "payments-value" in shell
    assert "payments.dlq" in shell
    assert "not Avro at all" in shell


@pytest.mark.timeout(900)
def test_the_programs_of_exactly_once_run_as_they_stand(tmp_path: Path) -> None:
    """Both copy ten records once, and say so in the tables."""
    first, _ = outputs_of("Consume, transform, produce", tmp_path, {}, "docs/exactly-once.md")

    assert "TopicPartition(topic='invoices', partition=0): range(0, 10)" in first
    with KafkaConsumer(bootstrap_servers=str(tmp_path / "kafkalike-data")) as consumer:
        copies = [TopicPartition(topic, 0) for topic in ("orders", "invoices", "parcels")]
        assert consumer.end_offsets(copies) == dict.fromkeys(copies, 10)
    with KafkaConsumer(bootstrap_servers=str(tmp_path / "kafkalike-data"), group_id="shipping") as consumer:
        assert consumer.committed(copies[0]) == 10


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sparks_programs_of_exactly_once_run_as_they_stand(tmp_path: Path) -> None:
    """Run twice, they add nothing; then a snapshot is taken of what they wrote."""
    root, page = str(tmp_path / "kafkalike-data"), "docs/exactly-once.md"
    with KafkaProducer(bootstrap_servers=root) as producer:
        for number in range(10):
            producer.send("orders", f"order {number}".encode(), key=b"tea")
    headings = ["A Spark batch into several topics", "A stream into topics and a group"]
    # One process: starting Spark takes most of the time.
    again = [text for heading in headings for _, text in blocks(heading, page)] * 2
    again += [text for _, text in blocks("One moment of several topics", page)]

    seen = ran([sys.executable, "-c", "\n".join(again)], tmp_path, {})

    assert seen.count("10 rows in the table") == 2
    assert "10 rows\n10\n" in seen
    assert "position=OffsetAndMetadata(offset=10" in seen
    with KafkaConsumer(bootstrap_servers=root) as consumer:
        ends = dict.fromkeys(("archive", "parcels-nightly"), 10)
        ends |= dict.fromkeys(("early", "late", "cheap", "dear", "a-half", "the-other"), 5)
        assert consumer.end_offsets([TopicPartition(name, 0) for name in ends]) == {
            TopicPartition(name, 0): end for name, end in ends.items()
        }
    with KafkaConsumer(bootstrap_servers=root, group_id="split") as consumer:
        assert consumer.committed(TopicPartition("orders", 0)) == 10


@pytest.mark.parametrize(
    ("page", "heading", "printed"),
    [
        ("index.md", "First records", ["RecordMetadata", "[b'tea']", "PartitionCount: 2", "Processed a total of 1"]),
        ("concepts.md", "See it", ["00000000000000000002.json", "2 segments", "append"]),
        ("testing.md", None, ["0\n", "[b'tea']"]),
        ("coming-from.md", "Kafka", []),
        ("recipes.md", "An alert without Prometheus", ["Created topic orders."]),
    ],
)
def test_the_blocks_of_the_sites_own_pages_run_as_they_stand(
    tmp_path: Path, page: str, heading: str | None, printed: list[str]
) -> None:
    """In an empty folder, without Spark."""
    told = "\n".join(outputs_of(heading, tmp_path, {}, f"docs/{page}"))

    assert [text for text in printed if text not in told] == []


def test_the_site_is_built_strictly_without_a_network(tmp_path: Path) -> None:
    """Each link leads somewhere, each name of the reference is there."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # news of the theme, not of the pages
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = {name: (tmp_path / f"{name}.html").read_text() for name in ("api", "cli", "readme", "settings", "errors")}
    assert 'id="kafkalike.KafkaProducer.send"' in pages["api"]
    assert "--bootstrap-server" in pages["cli"]
    assert 'href="changelog.html"' in pages["readme"]


@pytest.mark.objects
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_blocks_on_s3_run_as_they_stand(tmp_path: Path) -> None:
    """Against a real server, which the environment names."""
    with running(S3, tmp_path / "server") as server:
        shell, python, spark = outputs_of("On S3", tmp_path, in_environment(server))

    assert "Created topic orders." in shell
    assert "RecordMetadata" in python
    assert "[b'tea']" in python
    assert "|partition|count|" in spark
    assert "only showing top 3 rows" in spark
