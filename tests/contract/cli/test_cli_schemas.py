"""`kafkalike schemas`: what it prints and refuses, over a cluster in memory and one on Delta tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalike.admin.testing import MemoryCluster
from tests.tools.cli import Done, call
from tests.tools.kinds import only_in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalike.log.cluster.cluster import Cluster

V1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
BAD = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
USES = '{"type":"record","name":"Bill","fields":[{"name":"order","type":"Order"}]}'


@pytest.fixture
def schemas(cluster: Cluster, tmp_path: Path) -> Callable[..., Done]:
    """Runs `kafkalike schemas`; `text` is the content of `--file`."""

    def run(*args: str, text: str | None = None) -> Done:
        more: list[str] = []
        if text is not None:
            file = tmp_path / "given"
            file.write_text(text)
            more = ["--file", str(file)]
        return call(cluster, "schemas", *args, *more)

    return run


def test_a_schema_is_registered_checked_shown_and_deleted(schemas: Callable[..., Done]) -> None:
    """The exit code says whether it may be."""
    made = schemas("register", "--subject", "order", text=V1)
    uses = schemas("register", "--subject", "bill", "--reference", "Order=order:1", text=USES)
    good, bad = (schemas("check", "--subject", "order", text=text) for text in (V1, BAD))
    shown = schemas("get", "--subject", "bill", "--json")

    assert (made.out, made.code) == ("Subject order version 1 has the schema, with id 1.\n", 0)
    assert uses.code == 0
    assert (good.out, good.code) == ("Compatible.\n", 0)
    assert bad.code == 1
    assert "Order.id: string cannot read long" in bad.out
    assert json.loads(shown.out)["references"] == [{"name": "Order", "subject": "order", "version": 1}]
    assert schemas("get", "--id", "1").out == V1 + "\n"
    assert schemas("list").out.splitlines() == [
        "bill\tAVRO\tversions 1\tlatest id 2",
        "order\tAVRO\tversions 1\tlatest id 1",
    ]
    assert "42206" in schemas("delete", "--subject", "order").err
    assert schemas("delete", "--subject", "bill").out == "Deleted softly: subject bill versions 1.\n"
    assert schemas("delete", "--subject", "bill", "--version", "1", "--permanent").out == (
        "Deleted permanently: subject bill versions 1.\n"
    )
    assert schemas("register", "--subject", "order", text=BAD).code == 1


def test_levels_and_modes_are_set_and_forgotten(schemas: Callable[..., Done]) -> None:
    """Of a subject, and of all."""
    assert schemas("config").out == "BACKWARD\n"
    assert schemas("config", "--set", "full", "--normalize").out == "FULL\nnormalize=true\n"
    assert schemas("config", "--delete").out == "Removed.\n"
    assert "40408" in schemas("config", "--subject", "s").err
    assert "42203" in schemas("config", "--set", "sideways").err
    assert schemas("mode").out == "READWRITE\n"
    assert schemas("mode", "--subject", "s", "--set", "readonly").out == "READONLY\n"
    assert "42205" in schemas("register", "--subject", "s", text=V1).err
    assert schemas("mode", "--subject", "s", "--delete").code == 0


def test_what_is_exported_is_imported_whole(schemas: Callable[..., Done], tmp_path: Path) -> None:
    """Into another cluster, and again; a trial run changes nothing."""
    schemas("register", "--subject", "order", text=V1)
    schemas("register", "--subject", "bill", "--reference", "Order=order:1", text=USES)
    file, other = tmp_path / "records", MemoryCluster()
    assert schemas("export", "--file", str(file)).code == 0

    trial = call(other, "schemas", "import", "--file", str(file), "--dry-run")
    done = call(other, "schemas", "import", "--file", str(file))
    again = call(other, "schemas", "import", "--file", str(file))

    assert trial.out == "Would import 2 versions and 0 settings; 0 versions existed.\n"
    assert done.out == "Imported 2 versions and 0 settings; 0 versions existed.\n"
    assert again.out == "Imported 0 versions and 0 settings; 2 versions existed.\n"
    assert call(other, "schemas", "export").out == file.read_text() == schemas("export").out
    file.write_text(file.read_text() + "nonsense\n")
    assert "line 3" in call(MemoryCluster(), "schemas", "import", "--file", str(file)).err


@only_in_memory("cluster")
@pytest.mark.parametrize(
    "args",
    [
        ("get",),
        ("get", "--id", "1", "--subject", "s"),
        ("register", "--subject", "s", "--reference", "nonsense"),
        ("config", "--set", "FULL", "--delete"),
        ("mode", "--set", "READONLY", "--delete"),
        ("list", "--registry-config", "missing.properties", "--url", "ftp://x"),
    ],
)
def test_what_makes_no_sense_is_refused(schemas: Callable[..., Done], args: tuple[str, ...]) -> None:
    """With one line that says why."""
    done = schemas(*args, **({"text": V1} if args[0] == "register" else {}))

    assert done.code in {1, 2}
    assert done.err.startswith("Error: ")
    assert len(done.err.splitlines()) == 1
