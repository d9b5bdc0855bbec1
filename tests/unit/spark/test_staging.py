"""Staging: what tasks stage becomes segments, however often a task runs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.log.runs.run_files import Numbering
from kafkalike.log.runs.run_manifest import StagedRun
from kafkalike.log.runs.run_payload import write_anew
from kafkalike.log.topic.column_rules import Rules
from kafkalike.maintenance.staging_lease import HeldFolder
from kafkalike.spark.writes.staged_files import KnownTopic, StagingTarget, stage_topics

RULES = Rules(num_partitions=1, first_turn=0, max_bytes=1000, min_time_ms=0, max_time_ms=10, now_ms=5, compacted=False)


def test_two_attempts_at_a_segment_write_two_files(tmp_path: Path) -> None:
    """Spark may run a task twice at a time: a late attempt must not touch the file that is committed."""
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"], pa.binary())], ["value"])
    target = StagingTarget(topic="t", known={"t": KnownTopic("id", RULES, None)}, missing=None)
    folder = HeldFolder(str(tmp_path))
    runs = [run for run in stage_topics(target, folder, [rows], 0).topics["t"].runs if isinstance(run, StagedRun)]
    where = Numbering(
        name="partition=0/a.parquet",
        partition=0,
        start=7,
        codec="none",
        append_time_ms=5,
        log_append_time=False,
    )

    first, late = (write_anew(folder.files, folder.files, (runs, where)) for _ in range(2))

    assert first.name != late.name
    assert first.offsets == range(7, 9)
    assert pq.read_table(tmp_path / first.name).column("offset").to_pylist() == [7, 8]
