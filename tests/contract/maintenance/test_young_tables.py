"""Young tables: those whose log has every version, each of which has only added records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.connect import open_cluster
from kafkalike.maintenance.verify.untouched_log import is_young
from tests.tools.records import batch, make_topic


def young(root: str, most: int = 500) -> bool:
    cluster = open_cluster(root)
    return is_young(cluster.files_of(cluster.topic("t")), most)


def appended(root: str) -> None:
    """A topic of four versions."""
    log = make_topic(root, (0, "a"))
    log.append(batch((0, "b"), (1, "c")))
    log.append(batch((1, "d")))


def test_a_table_that_was_only_appended_to_is_young(root: str) -> None:
    appended(root)

    assert young(root)


def test_an_empty_topic_is_young(root: str) -> None:
    make_topic(root)

    assert young(root)


def test_one_with_more_versions_than_are_read_is_none(root: str) -> None:
    appended(root)

    assert (young(root, most=4), young(root, most=3)) == (True, False)


LAZY = {"delta.enableExpiredLogCleanup": "false"}

OLD: dict[str, Callable[[str], object]] = {
    "its files were merged": lambda root: DeltaTable(f"{root}/t").optimize.compact(),
    "records were taken": lambda root: DeltaTable(f"{root}/t").delete("offset = 0"),
    "its metadata were changed": lambda root: DeltaTable(f"{root}/t").alter.set_table_properties(LAZY),
    "its first versions are gone": lambda root: Path(root, f"t/_delta_log/{0:020}.json").unlink(),
    "one in between is gone": lambda root: Path(root, f"t/_delta_log/{2:020}.json").unlink(),
    "a version is damaged": lambda root: Path(root, f"t/_delta_log/{1:020}.json").write_text("{"),
}


@pytest.mark.usefixtures("foreign_writes")
@pytest.mark.parametrize("change", OLD.values(), ids=OLD.keys())
def test_any_other_is_not(root: str, change: Callable[[str], object]) -> None:
    appended(root)
    cluster = open_cluster(root)
    files = cluster.files_of(cluster.topic("t"))

    change(root)

    assert not is_young(files)
