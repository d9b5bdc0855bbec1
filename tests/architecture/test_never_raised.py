"""Errors that stand as never raised are not raised."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "kafkalike" / "errors"


@pytest.mark.slow
def test_what_is_called_never_raised_is_not_raised() -> None:
    """`kafkalike.errors.protocol_errors` says so; an error that is used has a place and a sentence of its own."""
    named = {
        node.name
        for node in ast.walk(ast.parse((ERRORS / "protocol_errors.py").read_text()))
        if isinstance(node, ast.ClassDef)
    }
    texts = {
        file: file.read_text() for file in sorted((ROOT / "kafkalike").rglob("*.py")) if not file.is_relative_to(ERRORS)
    }
    used = {
        f"{file.relative_to(ROOT)}: {node.id}"
        for file, text in texts.items()
        # To parse them all takes two seconds.
        if any(name in text for name in named)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Name) and node.id in named
    }

    assert len(named) > 50
    assert len(texts) > 400
    assert used == set()
