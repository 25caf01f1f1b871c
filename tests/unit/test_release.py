"""`tools/release.py`: what may not be in a release is told."""

import hashlib
import io
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import pytest

import headwater
import release
from headwater.cli import main

NUMBER = "1.2.3"
METADATA = f"""\
Metadata-Version: 2.4
Name: headwater
Version: {NUMBER}
Summary: A stream platform.
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

# Headwater
"""
INFO = f"headwater-{NUMBER}.dist-info"
CONTENTS = {
    "headwater/py.typed": "",
    "headwater/_shipped/conf/jars.lock": "x",
    "headwater_broker/__init__.py": "",
    "headwater_client/__init__.py": "",
    "headwater_streams/quality/page/page.css": "",
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/entry_points.txt": "",
    f"{INFO}/licenses/LICENSE": "",
}


def wheel_of(tmp_path: Path, contents: Mapping[str, str], unrecorded: str = "") -> Path:
    """A wheel of these files, with a RECORD of all but one."""
    record = ""
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
            digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            if name != unrecorded:
                record += f"{name},sha256={digest},{len(text)}\n"
        archive.writestr(f"{INFO}/RECORD", record + f"{INFO}/RECORD,,\n")
    return path


def sdist_of(tmp_path: Path, *names: str, top: str = f"headwater-{NUMBER}") -> Path:
    path = tmp_path / "x.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (*names, "PKG-INFO"):
            data = METADATA.encode() if name == "PKG-INFO" else b""
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


WHOLE = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "conf/jars.lock")


def test_release_takes_a_wheel_that_is_whole(tmp_path: Path) -> None:
    assert list(release.problems_of_wheel(wheel_of(tmp_path, CONTENTS), NUMBER)) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tests/test_x.py": ""}, "headwater_streams, tests on top"),
        ({"headwater/__pycache__/x.pyc": ""}, "it has headwater/__pycache__/x.pyc"),
        ({f"{INFO}/METADATA": METADATA.replace("1.2.3", "1.2.4")}, "its version is 1.2.4, and the code's 1.2.3"),
        ({f"{INFO}/METADATA": METADATA.replace("text/markdown", "text/plain")}, "is not the README in Markdown"),
        ({f"{INFO}/METADATA": METADATA.replace("Summary: A stream platform.\n", "")}, "it has no summary"),
    ],
)  # fmt: skip
def test_release_tells_what_a_wheel_has_that_it_should_not(
    tmp_path: Path, changed: Mapping[str, str], problem: str
) -> None:
    told = list(release.problems_of_wheel(wheel_of(tmp_path, {**CONTENTS, **changed}), NUMBER))
    assert any(problem in each.lower() or problem in each for each in told), told


def test_release_tells_what_a_wheel_lacks(tmp_path: Path) -> None:
    contents = {name: text for name, text in CONTENTS.items() if not name.endswith(("py.typed", "LICENSE"))}
    told = list(release.problems_of_wheel(wheel_of(tmp_path, {**contents, "headwater/a.py": ""}), NUMBER))
    assert told == [f"it has no {INFO}/licenses/LICENSE", "it has no headwater/py.typed"]


def test_release_tells_what_a_record_does_not_say(tmp_path: Path) -> None:
    told = list(release.problems_of_wheel(wheel_of(tmp_path, CONTENTS, "headwater/py.typed"), NUMBER))
    assert told == ["its RECORD has another digest of headwater/py.typed, or none"]


def test_release_takes_an_sdist_that_is_whole(tmp_path: Path) -> None:
    assert list(release.problems_of_sdist(sdist_of(tmp_path, *WHOLE), NUMBER)) == []


def test_release_tells_what_an_sdist_lacks_and_what_it_should_not_have(tmp_path: Path) -> None:
    sdist = sdist_of(tmp_path, *WHOLE[1:], "broker/x.so", ".venv/bin/python")
    assert list(release.problems_of_sdist(sdist, NUMBER)) == [
        "it has no pyproject.toml",
        "it has .venv/bin/python",
        "it has broker/x.so",
    ]
    assert list(release.problems_of_sdist(sdist_of(tmp_path, top="other"), NUMBER)) == [
        f"not all of it is below headwater-{NUMBER}/"
    ]


def test_release_asks_for_the_section_of_its_version() -> None:
    changelog = "# Changelog\n\n## 1.2.2 (2030-01-01)\n"
    assert list(release.problems_of_changes(changelog, ["48.added.md"], NUMBER)) == [
        "CHANGELOG.md has no section of 1.2.3: make changelog",
        "changes/ still has 48.added.md: make changelog",
    ]
    assert list(release.problems_of_changes(changelog.replace("1.2.2", NUMBER), [], NUMBER)) == []


def test_version_stands_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{headwater.__version__}\n"
    assert release.version() == headwater.__version__
    project = (release.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in project
    assert "\nversion = " not in project
