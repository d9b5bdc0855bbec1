"""Damage to the table of schemas: nothing is written past it, and no id of a lost schema is given again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalike.connect import connect
from kafkalike.delta.log_files import LAST_CHECKPOINT, LogFiles
from kafkalike.errors import LogCorruptError, SchemaRegistryError
from kafkalike.maintenance.verify.table_damage import find_flaws
from kafkalike.schemas import Registry, Schema
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.port import Entry
from tests.tools.cli import call
from tests.tools.damage import commits, cut_off, data_file_of, flip

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = "__schemas"
KINDS = ("int", "long", "string", "bytes")


@pytest.fixture
def registry(root: str) -> Registry:
    """Ids 1 to 3, each in a commit and a file of its own."""
    made = Registry(root)
    assert [made.register_schema(f"s{kind}", Schema(f'"{kind}"')) for kind in KINDS[:3]] == [1, 2, 3]
    return made


@pytest.mark.parametrize("damage", [cut_off, flip])
@pytest.mark.parametrize("nth", [-1, -2])
def test_after_a_damaged_commit_is_repaired_its_ids_are_not_given_again(
    root: str, registry: Registry, damage: Callable[[Path], None], nth: int
) -> None:
    """Before, what comes below a damaged end can be read, and nothing is registered."""
    damage(commits(root, TABLE)[nth])
    fresh = Registry(root)
    if nth == -1:
        assert fresh.get_schema(1).schema_str == '"int"'
    with pytest.raises(LogCorruptError):
        fresh.register_schema("s", Schema('"bytes"'))
    assert call(connect(root), "verify").code == 1

    done = call(connect(root), "verify", "--repair", "--execute")

    assert (done.code, "lost row" in done.out) == (0, True)
    again = Registry(root)
    lost = {-1: "sstring", -2: "slong"}[nth]
    assert again.get_subjects() == sorted({"sint", "slong", "sstring"} - {lost})
    assert again.register_schema("new", Schema('"bytes"')) > 3
    assert "0 errors" in call(connect(root), "verify").out


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_after_a_damaged_file_is_repaired_its_ids_are_not_given_again(root: str, registry: Registry, nth: int) -> None:
    """The others are there, under their ids."""
    file = data_file_of(root, TABLE, commits(root, TABLE)[nth - 3])
    file.write_bytes(b"nothing")

    assert call(connect(root), "verify", "--repair", "--execute").code == 0

    again = Registry(root)
    left = [kind for number, kind in enumerate(KINDS[:3]) if number != nth]
    assert again.get_subjects() == sorted(f"s{kind}" for kind in left)
    assert again.register_schema("new", Schema('"bytes"')) > 3
    with pytest.raises(SchemaRegistryError):
        again.get_schema(nth + 1)


def test_a_checkpoint_that_is_made_while_somebody_looks_is_no_damage() -> None:
    """The pointer to it comes after it, and both after the files were listed."""

    class Busy(MemoryStorage):
        """Its table gets a checkpoint as soon as its log was listed."""

        listed = 0

        def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
            found = super().list(folder, deep=deep, after=after)
            self.listed += 1
            if self.listed == 1:
                self.replace(f"_delta_log/{7:020d}.checkpoint.parquet", b"whole")
                self.replace(LAST_CHECKPOINT, b'{"version": 7, "size": 1}')
            return found

    store = Busy()
    store.replace(f"_delta_log/{0:020d}.json", b'{"commitInfo":{}}\n')
    assert LogFiles.listed(MemoryStorage()).checkpoints == {}

    assert find_flaws(store, control=False) == []
