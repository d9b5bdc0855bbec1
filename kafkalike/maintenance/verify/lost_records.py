"""Lost records: a table that has lost commits in; what they held, and where offsets must go on, out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaError
from kafkalike.maintenance.verify.flaws import check_storage, run
from kafkalike.storage.parquet import UNREADABLE, open_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRecords:
    """What the lost commits of one table held.

    Args:
        cluster: where the table is.
        location: its folder below the root.
        topic: None for a control table.
        keep: copies a file of the table to where damaged files are kept.
        say: gets a sentence for each thing that is lost.
    """

    cluster: Cluster
    location: str
    topic: TopicInfo | None
    keep: Callable[[str], None]
    say: Callable[[str], None]

    @property
    def store(self) -> Storage:
        """The table's."""
        return self.cluster.store.at(self.location)

    def ends_in_doubt(self, state: TableState) -> dict[int, int]:
        """Log ends that records of a lost commit may have had: their offsets must not be given out a second time.

        Nor must the numbers of a control table's rows, which are those of its partition 0.

        Its data files are still there as a rule, and named by no version; they are kept beside the damaged files.
        """
        claims: dict[int, int] = {}
        for entry in self.store.list(deep=True):
            place = _place(entry.name, control=self.topic is None)
            if place is None or state.index.has(entry.name):
                continue
            partition, start = place
            if start < state.end(partition) and (self.topic or state.index.within(partition, range(start, start + 1))):
                continue
            end, rows = start + 1, None
            try:
                with open_parquet(self.store, entry.name) as file:
                    rows = file.read(use_threads=False)
                end = start + max(1, rows.num_rows)
            except UNREADABLE as cause:
                check_storage(cause)
            claims[partition] = max(end, claims.get(partition, 0))
            self.keep(entry.name)
            for line in self._lost(partition, range(start, end), rows):
                self.say(line)
        if self.topic is None:
            return claims
        for partition, offset in self._committed().items():
            if offset > max(state.end(partition), claims.get(partition, 0)):
                known = max(state.end(partition), claims.get(partition, 0))
                self.say(f"{self.topic.name}-{partition}: offsets {run(range(known, offset))} are lost")
                claims[partition] = offset
        return claims

    def _lost(self, partition: int, offsets: range, rows: pa.Table | None) -> list[str]:
        if self.topic is not None:
            return [f"{self.topic.name}-{partition}: offsets {run(offsets)} are lost"]
        if rows is None:
            return [f"{self.location}: rows {run(offsets)} are lost"]
        return [f"{self.location}: lost row {_row_text(row)}" for row in rows.to_pylist()]

    def _committed(self) -> dict[int, int]:
        """The highest offset that any group has committed, by partition."""
        assert self.topic is not None
        found: dict[int, int] = {}
        try:
            groups = self.cluster.groups.refresh().groups
        except KafkaError:
            return {}
        for group in groups.values():
            for where, commit in group.offsets.items():
                if where.topic == self.topic.name and commit.topic_id == self.topic.topic_id:
                    found[where.partition] = max(found.get(where.partition, 0), commit.position.offset)
        return found


def _place(path: str, *, control: bool) -> tuple[int, int] | None:
    """Partition and first offset (or row) of a data file of ours, by its name; None for any other file."""
    folder, _, name = path.rpartition("/")
    words = name.removesuffix(".parquet").split("-")
    if len(words) != 3 or words[0] != "part" or not words[1].isdigit() or name == path.removesuffix(".parquet"):  # noqa: PLR2004
        return None
    if control:
        return (0, int(words[1])) if not folder else None
    number = folder.removeprefix("partition=")
    return (int(number), int(words[1])) if number.isdigit() and number != folder else None


def _row_text(row: Mapping[str, Any]) -> str:
    what = row.get("change") or row.get("metadata") or row.get("member_id") or ""
    if row.get("schema_id") is not None:
        what = f"version {row['version']} with id {row['schema_id']}"
    whose = row.get("group_id") or row.get("topic") or row.get("subject")
    where = "" if "group_id" not in row or row.get("topic") is None else f" {row['topic']}-{row['partition']}"
    at = "" if row.get("offset") is None else f" offset {row['offset']}"
    return f"{row['seq']}: {row['kind']} {whose}{where}{at} {what}".rstrip()
