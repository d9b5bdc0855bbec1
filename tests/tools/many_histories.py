"""Many histories of replicas, under any Python from 3.9 on: `pypy3 tests/tools/many_histories.py replicas 10 20`.

PyPy plays them many times as fast as CPython, and speaks an older Python: what it cannot run of the pure modules is an
alias for types, `A | B`, which is replaced as they are loaded. It prints how many were played, and the seeds of those
that broke an obligation.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import time
import typing
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

TOP = Path(__file__).resolve().parents[2]
PURE = (
    "kafkalike.model.effects",
    "kafkalike.model.replication",
    "tests.tools.histories",
    "tests.tools.quorum_world",
    "tests.tools.replica_",
)
"""Beginnings of the names of modules that are loaded; the packages around them stay empty."""


class Aliases(ast.NodeTransformer):
    """`Act = Read | Put` becomes `Act = "Read | Put"`: annotations are texts anyway."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
            node.value = ast.copy_location(ast.Constant(ast.unparse(node.value)), node.value)
        return node


class Pure(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the pure modules, and empty packages around them."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name.partition(".")[0] not in {"kafkalike", "tests"}:
            return None
        is_package = (TOP / name.replace(".", "/")).is_dir()
        return importlib.util.spec_from_loader(name, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        file = TOP / (module.__name__.replace(".", "/") + ".py")
        if not file.is_file():
            return
        assert module.__name__.startswith(PURE), module.__name__
        tree = Aliases().visit(ast.parse(file.read_text(), str(file)))
        exec(compile(ast.fix_missing_locations(tree), str(file), "exec"), module.__dict__)  # noqa: S102 - our own files


def main(what: str, first: int, last: int) -> None:
    """Play the histories of seeds from `first` to before `last`, of `replicas` or of `voters`."""
    sys.meta_path.insert(0, Pure())
    vars(typing).setdefault("TypeAlias", object())
    from tests.tools import quorum_world, replica_world

    counts: Any = Counter()
    began, broken = time.monotonic(), 0
    for seed in range(first, last):
        try:
            if what == "voters":
                counts.update(quorum_world.play(seed, 1_500).counts)
            else:
                counts.update(replica_world.play(seed, 1_000 if seed % 50 == 0 else 160).counts)
        except AssertionError as failed:
            broken += 1
            print(f"BROKEN {failed}", flush=True)  # noqa: T201
        if (seed - first + 1) % 10_000 == 0 or seed + 1 == last:
            done, seconds = seed - first + 1, time.monotonic() - began
            print(f"{done} played, {broken} broken, {done / seconds:.0f} per second: {dict(counts)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
