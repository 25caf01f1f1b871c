"""Data Docs as single HTML files: great-expectations' own renderer in a page of ours that needs no network.

The library's page loads scripts, styles and its logo from six other hosts. Here only its contents are used. The page
around them, the style and the short script that the contents need are files beside this module, and are written into
every page.
"""

import html
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater_streams.quality.rejected import RejectedBy
from headwater_streams.quality.result import SuiteResult, stored_results
from headwater_streams.storage.files import read_text

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult

_PAGE_DIR = Path(__file__).parent / "page"


def render_result(
    result: SuiteResult,
    validation: "ExpectationSuiteValidationResult",
    rejected: Sequence[RejectedBy] = (),
) -> str:
    """The page of one run, with what the quarantine kept out of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer

        escaped = copy(validation)
        escaped.results = list(map(_as_text, validation.results))
        # A warning that does not hold leaves the suite passed: the page's own verdict must say the same.
        escaped.success = result.passed
        document = ValidationResultsPageRenderer().render(escaped)
        # The overview's first block repeats our heading, with a link to a page of the suite that we do not make.
        document.sections[0].content_blocks.pop(0)
        return str(_view()().render(document, run=result, rejected=rejected, **_assets()))


def _as_text(validated: "ExpectationValidationResult") -> "ExpectationValidationResult":
    """A result with its values escaped: the renderer writes the values of records into the page as they are."""
    escaped = copy(validated)
    escaped.result = _escaped(validated.result)
    escaped.exception_info = _escaped(validated.exception_info)
    return escaped


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return html.escape(value)
    if isinstance(value, Mapping):
        return {key: _escaped(each) for key, each in value.items()}
    return [_escaped(each) for each in value] if isinstance(value, list | tuple) else value


def render_index(home: Path) -> str:
    """The page that lists every stored run of a home, the newest version of each table first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = sorted(stored_results(home), key=lambda run: (run.table, -run.version))
        template = _view()().env.get_template("index.html.j2")
        return str(template.render(runs=runs, home=home, **_assets()))


@cache
def _view() -> Any:
    from great_expectations.render.view import DefaultJinjaPageView

    class OfflinePageView(DefaultJinjaPageView):  # type: ignore[misc]  # the library is untyped here
        """The library's view with our page template."""

        _template = "run.html.j2"

        def __init__(self) -> None:
            super().__init__(custom_views_directory=str(_PAGE_DIR))

    return OfflinePageView


@cache
def _assets() -> dict[str, str]:
    return {name: read_text(_PAGE_DIR / file) for name, file in _ASSET_FILES.items()}


_ASSET_FILES = {"style": "page.css", "script": "page.js"}
