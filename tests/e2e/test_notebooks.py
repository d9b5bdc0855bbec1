"""The notebooks: each runs from its first cell to its last, and is kept without outputs."""

import json
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def client() -> Iterator[NotebookClient]:
    """One kernel, and so one JVM, for all of them: a Spark that starts anew in it costs a second, not ten."""
    nothing = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    shared = NotebookClient(nothing, timeout=300)
    shared.execute(cleanup_kc=False)
    yield shared
    shared.nb = nothing
    shared.execute()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path: Path, tmp_path: Path, client: NotebookClient) -> None:
    """Every cell runs, without a variable of another notebook, in an empty folder, and nothing is left in it.

    By `make test-all`: what they show stands in the README's tour and the blocks of docs/spark.md, docs/sql.md,
    docs/schemas.md and docs/exactly-once.md too, which run each time.
    """
    client.nb = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    fresh = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")  # type: ignore[no-untyped-call]
    client.nb.cells.insert(0, fresh)

    client.execute(cleanup_kc=False)

    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    """Outputs would differ at each run, and hold machine paths."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]

    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []
