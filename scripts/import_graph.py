"""Import graph: a checkout's path in, the order of the folders of `kafkalike/log` out.

    python scripts/import_graph.py [PATH] [--package kafkalike.log] [--picture docs/architecture.md]

Imports under `TYPE_CHECKING` and inside functions count: whoever changes a module has to know what it names. PATH may
be any checkout, such as one of an older commit to compare with.

The exit code is 1 when there is a circle, an import that goes up, a folder that is too large, or too many levels.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import grimp

Node = TypeVar("Node", bound=Hashable)

PACKAGE: Final = "kafkalike.log"

TOP: Final = "top"
"""The modules of `kafkalike/log` itself that are no folder of their own."""

LAYERS: Final = (
    ("jvm",),
    (TOP,),
    ("inspect", "mirrors", "staged", "upkeep"),
    ("cluster",),
    ("transactions",),
    ("port", "runs"),
    ("topic",),
    ("table",),
    ("store",),
)
"""Folders from the top; each may import those below it, and folders of one line not each other. `port`, what the rest
of the package may ask of a log, is a module that counts as a folder."""

MOST_MODULES: Final = 25
"""In a folder."""

MOST_LEVELS: Final = 8
"""Of folders, the longest way down."""

BEGIN: Final = "<!-- folders: written by `make graph` -->"
END: Final = "<!-- end of folders -->"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a package's imports look like."""

    package: str
    modules: AbstractSet[str]
    """Full names, packages' own `__init__` left out unless it imports or is imported."""
    imports: AbstractSet[tuple[str, str]]
    """Importer and imported, both within the package."""

    def folder(self, module: str) -> str:
        """The folder that a module lies in."""
        name, _, below = module.removeprefix(self.package).removeprefix(".").partition(".")
        if below or name in _FOLDER_LEVEL or f"{self.package}.{name}" in self._packages():
            return name
        return TOP

    def _packages(self) -> set[str]:
        return {module.rpartition(".")[0] for module in self.modules}

    def sizes(self) -> Counter[str]:
        """Modules by folder."""
        return Counter(self.folder(module) for module in self.modules)

    def crowds(self) -> Counter[str]:
        """Modules right in each folder of the disk, without those of a folder in it."""
        below = (module.removeprefix(self.package).removeprefix(".") for module in self.modules)
        return Counter(name.rpartition(".")[0] for name in below)

    def folder_imports(self) -> Counter[tuple[str, str]]:
        """Imports between folders, each with the number of the modules' own."""
        pairs = ((self.folder(a), self.folder(b)) for a, b in self.imports)
        return Counter((a, b) for a, b in pairs if a != b)

    def upwards(self) -> list[tuple[str, str]]:
        """Imports from a folder into one that is not below it."""
        return sorted((a, b) for a, b in self.imports if not _allowed(self.folder(a), self.folder(b)))

    def circles(self) -> list[list[str]]:
        """Groups of modules each of which imports, by however many steps, all the others."""
        return [sorted(c) for c in components(self.modules, self.imports) if len(c) > 1]

    def levels(self) -> int:
        """Modules on the longest way down; a circle counts once."""
        return longest(self.modules, self.imports)

    def folder_levels(self) -> int:
        """The same of folders."""
        return longest(set(self.sizes()), set(self.folder_imports()))


_FOLDER_LEVEL: Final = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}


def _allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    below = len(LAYERS)
    # A folder that nobody has placed is out of order, whoever imports it.
    return _FOLDER_LEVEL.get(importer, below) < _FOLDER_LEVEL.get(imported, -1)


def measure(path: Path, package: str = PACKAGE) -> Measured:
    """Read the imports of a package's source.

    Args:
        path: the folder that holds the root package.
        package: the full name of the package.

    Raises:
        ValueError: there is no such package.
    """
    root = package.partition(".")[0]
    if not (path / root / "__init__.py").is_file():
        message = f"{path} has no package {root}"
        raise ValueError(message)
    sys.path.insert(0, str(path))
    graph = grimp.build_graph(root, cache_dir=None, exclude_type_checking_imports=False)
    modules = {m for m in graph.modules if m == package or m.startswith(f"{package}.")}
    imports = {(a, b) for a in modules for b in graph.find_modules_directly_imported_by(a) if b in modules}
    parents = {m.rpartition(".")[0] for m in modules}
    used = {module for pair in imports for module in pair}
    return Measured(package, {m for m in modules if m not in parents or m in used}, imports)


def components(nodes: AbstractSet[Node], edges: AbstractSet[tuple[Node, Node]]) -> list[set[Node]]:
    """Strongly connected groups, those at the end of all ways first (Tarjan's algorithm)."""
    following: dict[Node, list[Node]] = {node: [] for node in nodes}
    for a, b in edges:
        following[a].append(b)
    seen: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    stack: list[Node] = []
    found: list[set[Node]] = []

    def visit(node: Node) -> None:
        seen[node] = lowest[node] = len(seen)
        stack.append(node)
        for other in following[node]:
            if other not in seen:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], seen[other])
        if lowest[node] == seen[node]:
            at = stack.index(node)
            found.append(set(stack[at:]))
            del stack[at:]

    for node in nodes:
        if node not in seen:
            visit(node)
    return found


def longest(nodes: AbstractSet[Node], edges: AbstractSet[tuple[Node, Node]]) -> int:
    """Nodes on the longest way along the edges, where a circle counts as one."""
    groups = components(nodes, edges)
    where = {node: at for at, group in enumerate(groups) for node in group}
    below: dict[int, set[int]] = {at: set() for at in range(len(groups))}
    for a, b in edges:
        if where[a] != where[b]:
            below[where[a]].add(where[b])
    height: dict[int, int] = {}
    # `components` gives what is imported before those who import it.
    for at in range(len(groups)):
        height[at] = 1 + max((height[other] for other in below[at]), default=0)
    return max(height.values(), default=0)


def table(measured: Measured) -> str:
    """The numbers, for a terminal."""
    sizes, between = measured.sizes(), measured.folder_imports()
    order = sorted(sizes, key=lambda folder: (_FOLDER_LEVEL.get(folder, -1), folder))
    lines = [f"{'folder':<10} {'modules':>7}  imports"]
    for folder in order:
        below = ", ".join(f"{b} {n}" for (a, b), n in sorted(between.items()) if a == folder)
        lines.append(f"{folder:<10} {sizes[folder]:>7}  {below}")
    circles, largest = measured.circles(), max(measured.crowds().values())
    lines += [
        "",
        f"modules {sum(sizes.values())} on {measured.levels()} levels, imports {len(measured.imports)}",
        f"folders {len(sizes)} on {measured.folder_levels()} levels, imports {len(between)}",
        f"circles {len(circles)}, imports that go up {len(measured.upwards())}, largest folder {largest}",
    ]
    return "\n".join(lines)


def flaws(measured: Measured) -> list[str]:
    """What is out of order, one line each."""
    return [
        *(f"circle: {', '.join(circle)}" for circle in measured.circles()),
        *(f"up: {a} imports {b}" for a, b in measured.upwards()),
        *(
            f"folder: {r} has {n} modules, not {MOST_MODULES} at most"
            for r, n in measured.crowds().items()
            if n > MOST_MODULES
        ),
        *(
            [f"levels: {measured.folder_levels()}, not {MOST_LEVELS} at most"]
            if measured.folder_levels() > MOST_LEVELS
            else []
        ),
    ]


def picture(measured: Measured) -> str:
    """The folders as a mermaid flow chart; arrows that another way says as well are left out."""
    edges = set(measured.folder_imports())
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {folder}[{folder}: {_counted(measured, folder)}]" for folder in sorted(measured.sizes())]
    for a, b in sorted(edges):
        if not any(_leads(edges - {(a, b)}, c, b) for x, c in edges if x == a and c != b):
            lines.append(f"    {a} --> {b}")
    return "\n".join([*lines, "```"])


def _counted(measured: Measured, folder: str) -> str:
    """Modules right in a folder, and in each folder below it."""
    crowds = measured.crowds()
    below = [f"{name.partition('.')[2]} {n}" for name, n in sorted(crowds.items()) if name.startswith(f"{folder}.")]
    return ", ".join([str(crowds[folder] or measured.sizes()[folder]), *below])


def _leads(edges: AbstractSet[tuple[str, str]], start: str, end: str) -> bool:
    """Whether there is a way from a folder to another one."""
    reached, new = {start}, {start}
    while new:
        new = {b for a, b in edges if a in new} - reached
        reached |= new
    return end in reached


def write_picture(page: Path, drawn: str) -> None:
    """Put the picture between its marks on a page.

    Raises:
        ValueError: the page has no marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"{page} has no lines {BEGIN!r} and {END!r}"
        raise ValueError(message)
    page.write_text(f"{before}{BEGIN}\n{drawn}\n{END}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and what is out of order; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure the imports inside kafkalike/log.")
    parser.add_argument("path", nargs="?", type=Path, default=Path(__file__).parents[1], help="checkout to measure")
    parser.add_argument("--package", default=PACKAGE, help="package to measure (%(default)s)")
    parser.add_argument("--picture", type=Path, help="page to write the picture of the folders into")
    given = parser.parse_args(arguments)
    measured = measure(given.path.resolve(), given.package)
    print(table(measured))
    found = flaws(measured)
    for flaw in found:
        print(flaw, file=sys.stderr)
    if given.picture is not None:
        write_picture(given.picture, picture(measured))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
