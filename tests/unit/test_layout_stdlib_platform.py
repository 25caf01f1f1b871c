"""The source root `platform/` never hides the standard library's module of that name."""

import subprocess
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SKIPPED = {".git", ".venv", "__pycache__", ".headwater", "node_modules"}


def _folders(folder: Path) -> list[Path]:
    inner = [each for each in folder.iterdir() if each.is_dir() and each.name not in _SKIPPED]
    return [folder, *(found for each in inner for found in _folders(each))]


def test_platform_from_every_folder_is_the_standard_library_s() -> None:
    standard = Path(sysconfig.get_path("stdlib")) / "platform.py"
    for folder in _folders(ROOT):
        spec = PathFinder.find_spec("platform", [str(folder), *sys.path])
        assert spec is not None
        assert spec.origin is not None, f"in {folder}, import platform gives a folder"
        assert Path(spec.origin).samefile(standard), f"in {folder}, import platform gives {spec.origin}"


def test_platform_imported_in_the_root_is_the_standard_library_s() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.python_version())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ".".join(map(str, sys.version_info[:3]))
