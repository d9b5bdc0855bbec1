"""A4: what a foreign writer deletes does not take the log end back, however long ago it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafkalike.connect import connect
from kafkalike.delta.actions import CHECKSUM_KEY, log_name
from kafkalike.delta.table_state import load_with_base
from kafkalike.errors import DataLossError, IllegalArgumentError, LogCorruptError
from kafkalike.log.topic.topic_commits import LOOK_BACK, look_back, segment_of
from kafkalike.model.record_batch import TxnId
from kafkalike.storage.local import LocalStorage
from tests.tools.findings import errors_of, kinds_of
from tests.tools.records import all_records, batch, make_topic, open_log

pytestmark = pytest.mark.usefixtures("foreign_writes")


def taken_out(root: str, partition: int, above: int) -> None:
    """Delete a partition's records from an offset on, as a foreign writer with `deltalake` does."""
    DeltaTable(f"{root}/t").delete(f"partition = {partition} AND offset >= {above}")


def without_old_log(root: str) -> None:
    """Make a checkpoint, and remove the commits below the look back, as cleaning up the log does."""
    table = DeltaTable(f"{root}/t")
    table.create_checkpoint()
    for file in Path(root, "t", "_delta_log").glob("*.json"):
        if int(file.stem) < table.version():
            file.unlink()


def without_ends(root: str) -> None:
    """Make the table's commits such as versions of kafkalike made that did not record log ends."""
    for file in Path(root, "t", "_delta_log").glob("*.json"):
        lines = file.read_text(encoding="utf-8").splitlines()
        kept = [without_checksum(line) for line in lines if "kafkalike.end" not in line]
        file.write_text("".join(kept), encoding="utf-8")


def without_checksum(line: str) -> str:
    """A line of a commit that does not tell whether the others are as they were written."""
    action: dict[str, Any] = json.loads(line)
    action.get("commitInfo", {}).pop(CHECKSUM_KEY, None)
    return json.dumps(action) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("cleaned", [False, True])
def test_offsets_deleted_more_than_a_hundred_commits_ago_are_not_given_out_again(root: str, *, cleaned: bool) -> None:
    """Found by any client that comes new, with the old commits and without them; readers name the loss."""
    log = make_topic(root, (0, "a"), (0, "b"), (1, "c"))
    log.append(batch((0, "d"), (0, "e")))
    taken_out(root, 0, above=2)
    cluster = connect(root)
    other = open_log(cluster)
    for number in range(LOOK_BACK + 5):
        other.append(batch((1, f"n{number}")))
    cluster.settle()
    if cleaned:
        without_old_log(root)

    fresh = open_log(connect(root))

    assert fresh.log_end(0) == 4
    assert fresh.append(batch((0, "new"))).ranges == {0: range(4, 5)}
    with pytest.raises(DataLossError, match=r"offsets \[2, 4\) are missing"):
        all_records(root)
    assert "gap" in kinds_of(root)


@pytest.mark.slow
def test_the_end_of_a_partition_that_lost_its_newest_records_is_a_named_loss(root: str) -> None:
    """Also while nothing was appended to it since: a reader at the end of what is left does not wait for ever."""
    make_topic(root, (0, "a"), partitions=1).append(batch((0, "b")))
    taken_out(root, 0, above=1)
    without_old_log(root)

    with pytest.raises(DataLossError, match=r"offsets \[1, 2\) are missing"):
        all_records(root)
    assert errors_of(root) != []


def test_a_table_without_recorded_ends_gets_them_with_the_first_append(root: str) -> None:
    """Of all its partitions, so that a later deletion in any of them takes no end back."""
    make_topic(root, (0, "a"), (0, "b"), (1, "c"))
    without_ends(root)

    open_log(connect(root)).append(batch((1, "d")))

    taken_out(root, 0, above=0)
    without_old_log(root)
    assert open_log(connect(root)).append(batch((0, "new"))).ranges == {0: range(2, 3)}


def test_a_deletion_of_which_nothing_tells_how_far_it_went_is_refused(root: str) -> None:
    """A table of an older version, its old commits and the deleted files gone: an append could only guess."""
    log = make_topic(root, (0, "a"), (0, "b"), (1, "c"))
    log.append(batch((1, "d")))
    lost = [segment.path for segment in log.segments(0)]
    without_ends(root)
    taken_out(root, 0, above=0)
    without_old_log(root)
    for name in lost:
        Path(root, "t", name).unlink()
    for file in Path(root, "t", "_delta_log").glob("*.json"):
        file.write_text("".join(map(without_stats, file.read_text(encoding="utf-8").splitlines())), encoding="utf-8")

    with pytest.raises(LogCorruptError, match="DELETE at version"):
        open_log(connect(root)).append(batch((0, "again")))


def test_a_deletion_above_a_checkpoint_leaves_the_end_that_the_checkpoint_tells(root: str) -> None:
    """A table of an older version: the deleted file and its statistics are gone, but the checkpoint still names it."""
    log = make_topic(root, (0, "a"), (0, "b"), (1, "c"))
    lost = [segment.path for segment in log.segments(0)]
    without_ends(root)
    without_old_log(root)
    taken_out(root, 0, above=0)
    for name in lost:
        Path(root, "t", name).unlink()

    assert open_log(connect(root)).append(batch((0, "new"))).ranges == {0: range(2, 3)}


class NotedStore(LocalStorage):
    """Knows what was read of it."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.reads: list[str] = []

    def read(self, name: str) -> bytes:
        self.reads.append(name)
        return super().read(name)


@pytest.mark.parametrize(("recorded", "looked_at"), [(True, [6]), (False, [6, 5, 4, 3, 2, 1, 0])])
def test_a_load_looks_back_to_the_last_append_that_recorded_the_ends(
    root: str, *, recorded: bool, looked_at: list[int]
) -> None:
    """Whoever made it had looked back from there; a table of an older version is looked through."""
    log = make_topic(root, (0, "a"))
    for number in range(5):
        log.append(batch((1, f"n{number}")))
    if not recorded:
        without_ends(root)
    DeltaTable(f"{root}/t").create_checkpoint()
    store = NotedStore(f"{root}/t")
    state, base = load_with_base(store, segment_of)
    store.reads.clear()

    look_back(state, base.version, store)

    assert store.reads == [log_name(version) for version in looked_at]
    assert {p: state.end(p) for p in (0, 1)} == {0: 1, 1: 5}


def without_stats(line: str) -> str:
    action: dict[str, Any] = json.loads(line)
    if "remove" in action:
        action["remove"].pop("stats", None)
    return json.dumps(action) + "\n"


def test_names_of_writes_are_kept_apart_from_the_tables_own() -> None:
    """A user's write must not be taken for a log end or a cleaner's checkpoint."""
    with pytest.raises(IllegalArgumentError, match=r"txn_id must not begin with 'kafkalike\.'"):
        TxnId("kafkalike.end/0", 7)
