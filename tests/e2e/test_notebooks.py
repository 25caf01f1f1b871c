"""The notebooks: they run from top to bottom, and what they print is not in the repository.

Those that need a home which a demo made are run there: see `test_demo_run` and `test_demo_full`.
"""

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

RunNotebook = Callable[..., list[str]]

_NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.story
@pytest.mark.parametrize("path", sorted(_NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_is_valid_and_stripped(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_notebook_backfill_walkthrough_mends_the_table_and_takes_it_back(run_notebook: RunNotebook) -> None:
    shown = run_notebook("backfill_walkthrough")
    tables = [text for text in shown if text.splitlines()[0].endswith("max_delay")]
    assert len(tables) == 2
    before, after = (_column(text, "max_delay") for text in tables)
    assert (before, after) == (["5", "100", "9", "100"], ["5", "500", "9", "300"])
    assert shown.count("True") == 2, "neither a run nor a rollback shows"


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_notebook_windows_and_late_data_draws_what_the_job_counts(run_notebook: RunNotebook) -> None:
    shown = run_notebook("windows_and_late_data")
    assert "True" in shown, "the drawing has the late events of the job"
    counts = next(text for text in shown if text.splitlines()[-1].startswith("Name: late rows"))
    assert [line.split()[-1] for line in counts.splitlines()[:-1]] == ["4", "2", "0"]


def _column(table: str, name: str) -> list[str]:
    """The last column of a frame's plain text."""
    head, *rows = table.splitlines()
    assert head.split()[-1] == name
    return [row.split()[-1] for row in rows]
