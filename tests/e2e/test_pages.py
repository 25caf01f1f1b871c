"""The README and the pages that need a broker or Spark, run from top to bottom as a reader would."""

from pathlib import Path

import pytest

from doc_pages import PageRun, name_of, needs_broker, needs_spark, pages, runs

_PAGES = [page for page in pages() if runs(page)]
_OF_SPARK = [pytest.param(page, id=name_of(page)) for page in _PAGES if needs_spark(page)]
_OF_BROKERS = [
    pytest.param(page, id=name_of(page), marks=pytest.mark.story)
    for page in _PAGES
    if needs_broker(page) and not needs_spark(page)
]


def run_in(tmp_path: Path, page: Path) -> None:
    for name in ("page", "work"):
        (tmp_path / name).mkdir()
    PageRun(tmp_path / "page", tmp_path / "work").run(page)


@pytest.mark.parametrize("page", _OF_BROKERS)
def test_pages_with_a_broker_run_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run_in(tmp_path, page)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", _OF_SPARK)
def test_pages_with_spark_run_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    run_in(tmp_path, page)
