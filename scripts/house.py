"""House: measure the shape of the package; none of the figures may rise.

    python -m scripts.house [--list] [--check | --record] [ROOT]

`--check` ends with 1 when a figure is above its limit in `scripts/limits.json`; `make arch` runs it. `--record` lowers
the limits to today's figures. `--list` names the places behind the figures.
"""

from __future__ import annotations

import argparse
import ast
import gc
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from scripts import ratchet

ROOT: Final = Path(__file__).parents[1]

PACKAGE: Final = "kafkalike"

ODD: Final = re.compile(
    r"(?:^|_)(?:\w+ed|\w+(?<!str)ing|near|far|past|beside|elsewhere|together|ahead|kept|sent|handed|between|anew|fewer"
    r"|young)$"
)
"""Participles, adverbs and prepositions; a module is named by a noun."""

NOUNS: Final = frozenset(
    {"indexing", "merging", "opening", "parsing", "ring", "routing", "spelling", "string", "testing", "typing"}
)
"""Nouns that look like participles."""

NO_ROOMS: Final = frozenset({"__init__", "__main__", "version"})
"""Modules at the top level that are no rooms."""


@dataclass(frozen=True)
class Module:
    """A Python file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module = field(repr=False)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of its tree."""
        return list(ast.walk(self.tree))

    @property
    def lines(self) -> int:
        """Number of its lines."""
        return self.text.count("\n")


@dataclass(frozen=True)
class House:
    """The package under a root, as its figures are counted.

    Args:
        root: folder that has the package.
    """

    root: Path

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Modules by dotted name; a package is named like its folder."""
        files = sorted(p for p in (self.root / PACKAGE).rglob("*.py") if "__pycache__" not in p.parts)
        found = {}
        for path in files:
            parts = path.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            found[name] = Module(name, path, text, ast.parse(text))
        return found

    def rooms(self) -> dict[str, int]:
        """Lines of each package and module at the top level."""
        lines: Counter[str] = Counter()
        for name, module in self.modules.items():
            first = name.split(".")[1] if "." in name else "__init__"
            if first not in NO_ROOMS:
                lines[first] += module.lines
        return dict(lines)

    def biggest_room(self) -> int:
        """Share of the largest room in all lines, percent, rounded up."""
        total = sum(module.lines for module in self.modules.values())
        return math.ceil(100 * max(self.rooms().values()) / total)

    def port_methods(self) -> list[str]:
        """The methods of the protocol or abstract class that has most of them; Python's own are not counted."""
        ports = [
            [
                f"{module.name}.{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("__")
            ]
            for module, node in self._classes()
            if _bases(node) & {"Protocol", "ABC"}
        ]
        return max(ports, key=len, default=[])

    def repeated_classes(self) -> list[str]:
        """Public class names that several modules define, with these."""
        homes = defaultdict(list)
        for module, node in self._classes():
            if not node.name.startswith("_") and node in module.tree.body:
                homes[node.name].append(module.name)
        return [f"{name}: {', '.join(where)}" for name, where in sorted(homes.items()) if len(where) > 1]

    def repeated_modules(self) -> list[str]:
        """File names that occur more than once."""
        homes = defaultdict(list)
        for module in self.modules.values():
            if module.path.stem not in {"__init__", "__main__"}:
                homes[module.path.stem].append(module.name)
        return [f"{name}: {', '.join(where)}" for name, where in sorted(homes.items()) if len(where) > 1]

    def single_importers(self) -> list[str]:
        """Modules that only one module of the same folder imports: parts of it."""
        importers = defaultdict(set)
        for module in self.modules.values():
            for imported in self._imports(module):
                importers[imported].add(module.path)
        return [
            name
            for name, paths in sorted(importers.items())
            if len(paths) == 1
            and self.modules[name].path.parent == next(iter(paths)).parent
            and self.modules[name].path.stem != "__init__"
        ]

    def odd_modules(self) -> list[str]:
        """Modules whose name is no noun."""
        return [
            module.name
            for module in self.modules.values()
            if ODD.search(module.path.stem) and module.path.stem not in NOUNS
        ]

    def broad_excepts(self) -> list[str]:
        """Handlers of `Exception`, `BaseException` or everything."""
        return [
            f"{module.path.relative_to(self.root)}:{node.lineno}"
            for module in self.modules.values()
            for node in module.nodes
            if isinstance(node, ast.ExceptHandler) and _is_broad(node)
        ]

    def import_share(self) -> int:
        """Lines of imports in lines of code, percent, rounded up; blank lines, comments and docstrings do not count."""
        imports = code = 0
        for module in self.modules.values():
            prose = set[int]()
            for node in module.nodes:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    imports += len(_span(node))
                elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    prose.update(_span(node))
            code += sum(
                1
                for number, line in enumerate(module.text.splitlines(), 1)
                if line.strip() and not line.strip().startswith("#") and number not in prose
            )
        return math.ceil(100 * imports / max(1, code))

    def places(self) -> dict[str, list[str]]:
        """What each figure that is a count has counted."""
        return {
            "rooms": sorted(self.rooms()),
            "methods of the largest port": self.port_methods(),
            "class names used more than once": self.repeated_classes(),
            "module names used more than once": self.repeated_modules(),
            "modules imported by one sibling only": self.single_importers(),
            "modules named by no noun": self.odd_modules(),
            "broad excepts": self.broad_excepts(),
        }

    def figures(self) -> dict[str, float]:
        """All figures by name."""
        return {
            **{name: len(found) for name, found in self.places().items()},
            "biggest room, percent of lines": self.biggest_room(),
            "import lines, percent of code": self.import_share(),
        }

    def _classes(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        for module in self.modules.values():
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    yield module, node

    def _imports(self, module: Module) -> Iterator[str]:
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    names = (f"{node.module}.{alias.name}", node.module)
                    yield from [name for name in names if name in self.modules][:1]


def _bases(node: ast.ClassDef) -> set[str]:
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return {base.id for base in plain if isinstance(base, ast.Name)}


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"}) for kind in caught
    )


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def main() -> int:
    """Print the figures, then compare or record them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--list", action="store_true", help="name the places behind the figures")
    ratchet.add_options(parser)
    options = parser.parse_args()
    # The syntax trees are a million objects, none of them garbage: looking for it doubles the time.
    gc.disable()
    house = House(options.root.resolve())
    figures = house.figures()
    for name, value in figures.items():
        print(f"{name:40s} {value:>8,}")
    if options.list:
        for name, found in house.places().items():
            print(f"\n{name}:", *found, sep="\n  ")
    return ratchet.settle("house", figures, options)


if __name__ == "__main__":
    sys.exit(main())
