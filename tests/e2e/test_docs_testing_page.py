"""The page in `headwater_streams.testing` that tests one job from nothing does so, word for word."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import headwater_streams.testing as page

_FILE = re.compile(r"`(\w+\.(?:py|sql))`[^\n]*\n(?:[^\n]+\n)*\n((?:    [^\n]*\n|\n)+)")


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_testing_page_its_job_passes_its_tests(tmp_path: Path) -> None:
    files = dict(_FILE.findall(page.__doc__ or ""))
    assert set(files) == {"delays.py", "test_delays.py", "carriers.sql", "test_carriers.py"}
    for name, text in files.items():
        (tmp_path / name).write_text(textwrap.dedent(text).strip() + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "headwater.cli", "jobs", "test", "delays.py", "carriers.sql"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0
    assert re.search(r"\b12 passed\b", ended.stdout)
