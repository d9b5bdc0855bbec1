"""Public paths: what a type checker reads of a module in its `.pyi` file is what a program gets of it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import kafkalike

STUBS = sorted(Path(kafkalike.__file__).parent.glob("*.pyi"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_a_stub_names_what_its_module_has(stub: Path) -> None:
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    module = importlib.import_module(f"kafkalike.{stub.stem}")

    assert imports
    for node in imports:
        assert node.module is not None
        home = importlib.import_module(node.module)
        for name in node.names:
            assert getattr(module, name.name) is getattr(home, name.name), name.name


def test_metrics_have_a_stub() -> None:
    assert {"metrics", "mirror", "retention", "dead_letters", "testing"} <= {stub.stem for stub in STUBS}
    assert set(importlib.import_module("kafkalike.metrics").__all__) == {
        "AppendCollector",
        "exposition",
        "serve_appends",
    }
