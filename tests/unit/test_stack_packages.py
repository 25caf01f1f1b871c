"""The zip of our packages that a job takes to its workers."""

from pathlib import Path

from headwater.stack.packages import packages_zip


def test_packages_zip_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    beside = tmp_path / "beside.py"
    beside.write_text("A = 1\n")
    first = packages_zip(tmp_path / "one", [beside])
    assert packages_zip(tmp_path / "two", [beside]).read_bytes() == first.read_bytes()
    beside.write_text("A = 2\n")
    assert packages_zip(tmp_path / "one", [beside]).name != first.name
