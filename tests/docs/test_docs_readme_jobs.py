"""The README's job is one, and what it names of `hw` is there."""

import re
from pathlib import Path

import pytest

import headwater as hw
from headwater_streams.runtime.loader import load_jobs

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
_JOBS = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "@hw.job" in block]


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
