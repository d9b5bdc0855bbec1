"""The notebooks: each runs from its first cell to its last, and shows what it showed when its outputs were stored."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import nbformat
import pytest
from nbclient import NotebookClient

from scripts import notebooks


@pytest.fixture(scope="module")
def client() -> Iterator[NotebookClient]:
    with notebooks.kernel() as shared:
        yield shared


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path, client: NotebookClient) -> None:
    """Every cell runs, without a variable of another notebook, in an empty folder, and nothing is left in it.

    By `make test-all`: what they show stands in the README's tour and the blocks of docs/spark.md, docs/sql.md,
    docs/schemas.md and docs/exactly-once.md too, which run each time.
    """
    made = notebooks.execute(client, path, tmp_path)

    assert notebooks.outputs(made) == notebooks.outputs(notebooks.read(path))
    # `register_sql` asks Spark's catalog for tables of the same names, which makes this folder, and leaves it empty.
    assert {path.name for path in tmp_path.rglob("*")} <= {"spark-warehouse"}


def test_notebooks_have_outputs_of_their_cells() -> None:
    assert [path.name for path in notebooks.stale()] == [], "run make notebooks"


@pytest.mark.parametrize("path", notebooks.paths(), ids=lambda path: path.stem)
def test_a_notebook_shows_tables_and_no_errors(path: Path) -> None:
    cells = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    kinds = [output.output_type for cell in cells for output in cell.outputs]

    assert "error" not in kinds
    assert len(kinds) >= 4
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"text/html": f"<b>{gettempdir()}/x/orders</b>", "text/plain": "orders"}, id="temporary folder"),
        pytest.param({"text/plain": "UserWarning: deprecated"}, id="warning"),
    ],
)
def test_cell_that_shows_the_machine_is_refused(shown: dict[str, str]) -> None:
    output = nbformat.v4.new_output("display_data", shown)  # type: ignore[no-untyped-call]

    with pytest.raises(notebooks.MachineOutputError, match="05_lag, cell 3"):
        notebooks._check(output, "05_lag, cell 3")


def test_parts_of_a_stream_are_joined() -> None:
    parts = [("stdout", "new\n"), ("stderr", "nothing was written\n"), ("stdout", "written before\n")]
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in parts]  # type: ignore[no-untyped-call]
    outputs.append(nbformat.v4.new_output("display_data", {"text/plain": "1"}))  # type: ignore[no-untyped-call]

    merged = notebooks._merged(outputs)

    assert [output.get("text") for output in merged] == ["new\nwritten before\n", "nothing was written\n", None]


def test_a_changed_cell_makes_outputs_stale() -> None:
    notebook = notebooks.read(notebooks.paths()[0])
    before = notebooks.digest(notebook)

    notebook.cells[1].outputs = []
    without_outputs = notebooks.digest(notebook)
    notebook.cells[1].source += "\n# changed"

    assert without_outputs == before
    assert notebooks.digest(notebook) != before
