"""The README is short, its job is one, and what it names of `hw` is there; docs/index.md leads to every part."""

import re
from pathlib import Path

import pytest

import headwater as hw
from headwater_streams.loader import load_jobs

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 130  # lines: what a newcomer reads to the end; all else is in docs/
_JOBS = [block for block in re.findall(r"```python[^\n]*\n(.*?)```", README, re.DOTALL) if "@hw.job" in block]


@pytest.mark.parametrize("block", _JOBS, ids=range(len(_JOBS)))
def test_readme_job_can_be_loaded(tmp_path: Path, block: str) -> None:
    module = tmp_path / "readme_job.py"
    module.write_text(block, encoding="utf-8")
    (job,) = load_jobs([str(module)])
    assert job.inputs
    assert job.checks


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bhw\.([a-z0-9_]+)", README))))
def test_readme_names_of_the_job_api_are_there(name: str) -> None:
    assert hasattr(hw, name)


def test_readme_is_read_to_its_end() -> None:
    assert len(README.splitlines()) <= LONGEST, "move it to a page of docs/, and link to that"
    assert [line for line in README.splitlines() if len(line) > 140] == []


def test_first_page_leads_to_every_part() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {link.partition("/")[0] for link in re.findall(r"\]\(([^)#\s]+)", index)}
    parts = {path.name for path in (ROOT / "docs").iterdir() if path.is_dir() or path.suffix == ".md"}
    assert parts - linked == {"assets", "index.md"}
