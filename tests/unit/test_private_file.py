"""A file for other processes of the same user, whose text must not stay anywhere."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headwater_streams.storage.private_file import private_file

TEXT = "sasl.jaas.config=s3cret é\n"


def test_private_file_is_read_by_another_process(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        path = private_file(TEXT, folder)
        for _ in range(2):  # each reader begins at its beginning
            done = subprocess.run(["cat", str(path)], capture_output=True, check=True)
            assert done.stdout.decode() == TEXT


def test_private_file_is_one_for_each_text() -> None:
    assert private_file(TEXT) == private_file(TEXT)
    assert private_file(TEXT) != private_file("another")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory with a name in /proc")
def test_private_file_of_this_machine_is_on_no_disk() -> None:
    path = private_file(TEXT)
    assert path.parts[:2] == ("/", "proc")
    assert "memfd" in str(path.readlink())


def test_private_file_for_other_machines_is_its_owners_and_goes_with_the_process(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from headwater_streams.storage.private_file import private_file\n"
        "path = private_file('s3cret', pathlib.Path(sys.argv[1]))\n"
        "print(oct(path.stat().st_mode & 0o777), oct(path.parent.stat().st_mode & 0o777))\n"
        "sys.argv[2] == 'killed' and __import__('os').kill(__import__('os').getpid(), 9)\n"
    )

    def run(how: str) -> str:
        command = [sys.executable, "-u", "-c", program, str(tmp_path), how]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert run("ends") == "0o600 0o700\n"
    assert list((tmp_path / "client-secrets").iterdir()) == []
    run("killed")
    (left,) = (tmp_path / "client-secrets").iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    run("ends")  # the next one removes it
    assert list((tmp_path / "client-secrets").iterdir()) == []
