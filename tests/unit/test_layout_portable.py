"""The repository names no package registry and no path of somebody's machine."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In two halves, so that this file does not name what it looks for.
_REGISTRIES = [
    "maven" + ".org",
    "mvnrepository" + ".com",
    "pypi" + ".org",
    "python" + "hosted.org",
    "crates" + ".io",
    "registry.npm" + "js.org",
    "golang" + ".org/",
    "deb.debian" + ".org",
    "repo.anaconda" + ".com",
]
_MACHINE_PATH = re.compile(r"""(?:^|[\s"'`=(:,])/(?:work|root|home|Users|mnt|farm)/[\w.-]+""")


def _tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def _found(matches: re.Pattern[str]) -> list[str]:
    hits = []
    for path in _tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if matches.search(line):
                hits.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return hits


def test_repository_names_no_registry() -> None:
    assert _found(re.compile("|".join(map(re.escape, _REGISTRIES)))) == []


def test_repository_names_no_machine_path() -> None:
    assert _found(_MACHINE_PATH) == []
