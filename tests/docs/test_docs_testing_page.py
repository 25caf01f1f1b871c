"""The page in `headwater_streams.testing` that tests one job from nothing does so, word for word."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headwater_streams.testing as page

_FILE = re.compile(r"`(\w+\.py)`[^\n]*\n(?:[^\n]+\n)*\n((?:    [^\n]*\n|\n)+)")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_testing_page_its_job_passes_its_tests(tmp_path: Path) -> None:
    files = dict(_FILE.findall(page.__doc__ or ""))
    assert set(files) >= {"delays.py", "test_delays.py"}
    for name in ("delays.py", "test_delays.py"):
        (tmp_path / name).write_text(textwrap.dedent(files[name]).strip() + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "headwater.cli", "jobs", "test", "delays.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0
    assert re.search(r"\b11 passed\b", ended.stdout)
