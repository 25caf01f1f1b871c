"""The how-to pages for contributors: what they tell to write works, in a copy of the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "contributing"
_TITLED = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_LINE = re.compile(r'^```text\n(" *\w+": Verb\(.*\),)\n```$', re.MULTILINE)


def written_by(page: str, folder: Path) -> list[Path]:
    """Writes the files that a page tells to write into a folder."""
    written = []
    for name, content in _TITLED.findall((PAGES / page).read_text(encoding="utf-8")):
        written.append(folder / name)
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        written[-1].write_text(content, encoding="utf-8")
    return written


def test_cli_verb_of_the_page_passes_its_tests_and_those_of_all_verbs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "platform", tmp_path / "platform", ignore=shutil.ignore_patterns("__pycache__"))
    _, test = written_by("add-a-cli-verb.md", tmp_path)
    of_all = shutil.copy(ROOT / "tests/docs/test_docs_cli_help.py", tmp_path)  # away from our conftest.py
    line = _LINE.findall((PAGES / "add-a-cli-verb.md").read_text(encoding="utf-8"))
    table = tmp_path / "platform/headwater/cli/verbs.py"
    before = table.read_text(encoding="utf-8")
    assert before.count("VERBS = {\n") == 1
    table.write_text(before.replace("VERBS = {\n", f"VERBS = {{\n    {line[0]}\n"), encoding="utf-8")
    paths = [tmp_path / "platform", ROOT / "streams", ROOT / "broker"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test), of_all,
         "-k", "tables or root"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b6 passed", done.stdout), done.stdout
