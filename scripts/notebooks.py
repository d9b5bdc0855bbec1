"""Notebooks: execute those in `notebooks`, and store with each what its cells show.

    python -m scripts.notebooks [--check] [NAME ...]

A notebook's metadata has the checksum of the cells that its outputs were made from. With `--check` nothing runs; the
exit code is 1 if a notebook has outputs of other cells.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

FOLDER: Final = Path(__file__).parents[1] / "notebooks"
VARIES: Final = "varies"
"""Tag of cells whose outputs differ from run to run, such as measured times."""

SECONDS: Final = 300
"""Timeout of one cell."""

_PLACE: Final = re.compile(rf"{re.escape(tempfile.gettempdir())}/|/(?:home|root|work|Users)/")
_WARNS: Final = re.compile(r"\bWARN|Warning\b")


class MachineOutputError(Exception):
    """A cell shows a folder of this machine, or a warning; nothing was written."""


def paths() -> list[Path]:
    """Return all notebooks, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> Any:  # noqa: ANN401 - nbformat is not typed
    """Return a notebook."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def digest(notebook: Any) -> str:  # noqa: ANN401
    """Return the checksum of a notebook's cells, without their outputs."""
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]


def stale() -> list[Path]:
    """Return the notebooks whose outputs are missing or were made from other cells."""
    return [path for path in paths() if read(path).metadata.get("outputs_of") != digest(read(path))]


def outputs(notebook: Any) -> list[tuple[str, ...]]:  # noqa: ANN401
    """Return the texts that cells show: one tuple per code cell, without pictures, log lines and cells that vary."""
    return [
        tuple(
            output.text if output.output_type == "stream" else output.data.get("text/plain", "")
            for output in cell.outputs
            if output.get("name") != "stderr"
        )
        for cell in notebook.cells
        if cell.cell_type == "code" and VARIES not in cell.metadata.get("tags", ())
    ]


@contextmanager
def kernel() -> Iterator[NotebookClient]:
    """Start one kernel, and so one JVM, for all notebooks: a Spark that starts anew in it costs a second, not ten."""
    empty = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    client = NotebookClient(empty, timeout=SECONDS, extra_arguments=["--IPKernelApp.capture_fd_output=False"])
    # Java and the kernel warn at their start, outside Python, which is nothing that a cell shows.
    client.execute(cleanup_kc=False, stderr=subprocess.DEVNULL)
    yield client
    client.nb = empty
    client.execute()


def execute(client: NotebookClient, path: Path, folder: Path) -> Any:  # noqa: ANN401
    """Run a notebook in a folder, with no variable of another one, and return it with its outputs.

    Args:
        client: see `kernel`.
        path: the notebook.
        folder: working directory.

    Raises:
        MachineOutputError: a cell shows a warning or a folder of this machine.
    """
    notebook = read(path)
    fresh = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}")  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, fresh)
    client.nb = notebook
    client.execute(cleanup_kc=False)
    notebook.cells.pop(0)
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = number
        cell.metadata.pop("execution", None)
        cell.outputs = _merged(cell.outputs)
        for output in cell.outputs:
            _check(output, f"{path.name}, cell {cell.id}")
            if output.output_type == "execute_result":
                output.execution_count = number
    notebook.metadata["outputs_of"] = digest(notebook)
    return notebook


def _merged(outputs: list[Any]) -> list[Any]:
    """Join the parts of each stream: how they alternate differs from run to run. Standard output comes first."""
    streams = sorted({output.name for output in outputs if output.output_type == "stream"}, reverse=True)
    texts = {
        name: "".join(output.text for output in outputs if output.get("name") == name and "text" in output)
        for name in streams
    }
    joined = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in texts.items()]  # type: ignore[no-untyped-call]
    return [*joined, *(output for output in outputs if output.output_type != "stream")]


def _check(output: Any, place: str) -> None:  # noqa: ANN401
    if output.output_type == "stream":
        shown = output.text
    else:
        shown = "\n".join(text for kind, text in output.data.items() if kind.startswith("text/"))
    if _WARNS.search(shown) or _PLACE.search(shown):
        raise MachineOutputError(f"{place} shows a warning or a folder of this machine:\n{shown}")


def main(args: Sequence[str] | None = None) -> int:
    """Execute notebooks and store their outputs, or with `--check` only name the stale ones."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="start of a notebook's name; default: all notebooks")
    parser.add_argument("--check", action="store_true", help="end with 1 when a notebook has outputs of other cells")
    options = parser.parse_args(args)
    if options.check:
        for path in stale():
            print(f"{path.name} has outputs of other cells: run make notebooks")
        return bool(stale())
    chosen = [path for path in paths() if not options.names or path.name.startswith(tuple(options.names))]
    # The kernel ends before its folder.
    with tempfile.TemporaryDirectory() as folder, kernel() as client:
        for path in chosen:
            made = execute(client, path, Path(folder))
            nbformat.write(made, path)  # type: ignore[no-untyped-call]
            print(path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
