"""Modules imported by a name in a string have the attributes that are taken of them, which no type checker sees."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kafkalike"
NAMES = re.compile(r"require_module|_HOME|[\"']kafkalike\.[\w.]+:")
"""What a file has that names modules in one of the three ways."""


def required(node: ast.expr) -> str | None:
    """The module of the package that a call of `require_module` names."""
    match node:
        case ast.Call(func=ast.Name(id="require_module"), args=[ast.Constant(value=str(name)), *_]):
            return name if name.startswith("kafkalike.") else None
    return None


def taken(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Pairs of a module and an attribute of it."""
    held: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (name := required(node.value)) and isinstance(node.targets[0], ast.Name):
            held[node.targets[0].id] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = required(node.value)
            if name is None and isinstance(node.value, ast.Name):
                name = held.get(node.value.id)
            if name is not None:
                yield name, node.attr


def lazy(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Pairs of a home and a public name, of tables from names to modules."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id="_HOME")], value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                        yield str(value.value), str(key.value)


def commands(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Pairs of a module and a command, written `module:command`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("kafkalike."):
            module, colon, attribute = node.value.partition(":")
            if colon and attribute.isidentifier():
                yield module, attribute


def named() -> set[tuple[str, str]]:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    # To parse them all takes two seconds.
    trees = [ast.parse(text) for text in texts if NAMES.search(text)]
    return {pair for tree in trees for find in (taken, lazy, commands) for pair in find(tree)}


@pytest.mark.slow
def test_modules_that_are_named_by_strings_have_what_is_taken_of_them() -> None:
    pairs = sorted(named())

    missing = [f"{module}.{name}" for module, name in pairs if not hasattr(import_module(module), name)]

    assert len(pairs) > 100
    assert missing == []


@pytest.mark.parametrize(
    "source",
    [
        "app = require_module('kafkalike.ui.app', 'x')\napp.nothing()",
        "require_module('kafkalike.ui.app', 'x').nothing",
        "_HOME = {'nothing': 'kafkalike.ui.app'}",
        "{'a': ('kafkalike.ui.app:nothing', 'help')}",
    ],
    ids=["held", "at once", "lazy name", "command"],
)
def test_planted_name_is_seen(source: str) -> None:
    tree = ast.parse(source)

    assert NAMES.search(source)
    assert [pair for find in (taken, lazy, commands) for pair in find(tree)] == [("kafkalike.ui.app", "nothing")]
