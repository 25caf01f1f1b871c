"""NUL characters that no program wrote: of files made in full, truncated under their programs, or cut by lost power."""

import os
from pathlib import Path

import pytest

from followed import BANNER, Follower, append
from headwater.ship.tail import CHUNK_BYTES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def allocate(path: Path, size: int, *, holes: bool) -> None:
    """Makes a file longer: of zeros that are on the disk, or of a hole."""
    if holes:
        os.truncate(path, size)
    else:
        with path.open("ab") as file:
            file.write(bytes(size - path.stat().st_size))


def write_at(path: Path, position: int, text: str) -> int:
    with path.open("r+b") as file:
        file.seek(position)
        return position + file.write(text.encode())


@pytest.mark.parametrize("holes", [True, False])
@pytest.mark.parametrize("size", [4096, 3 * CHUNK_BYTES, 9 * CHUNK_BYTES])
def test_file_that_was_made_in_full_gives_each_line_once_and_no_zeros(
    log: Path, size: int, holes: bool
) -> None:
    log.touch()
    allocate(log, size, holes=holes)
    follower = Follower(log)
    follower.poll()
    follower.poll(ends=True)
    assert follower.sent == []
    at = 0
    for number in range(4):
        at = write_at(log, at, f"line {number}\nhalf")
        follower.poll()
        at = write_at(log, at, " of it\n")
        follower.poll()
    at = write_at(log, at, "last")
    follower.poll()
    assert len(follower.sent) == 8
    follower.poll(ends=True)
    follower.poll(ends=True)
    assert follower.lines == [*[each for n in range(4) for each in (f"line {n}", "half of it")], "last"]
    write_at(log, at, " word\n")
    follower.poll()
    assert follower.lines[-1] == " word"
    assert follower.messages == []


def test_file_that_was_made_in_full_is_read_once_through_kills_and_rotation(log: Path) -> None:
    log.touch()
    allocate(log, 1 << 16, holes=False)
    follower = Follower(log.with_name("app.log*"))
    at = 0
    for number in range(6):
        at = write_at(log, at, f"{number} {BANNER}\n")
        follower.poll(save=number % 2 == 0)
        follower.kill()
    follower.poll()
    log.rename(log.with_name("app.log.1"))
    append(log, "new")
    for _ in range(3):
        follower.now += 100
        follower.poll(ends=True)
    assert follower.lines == [*[f"{number} {BANNER}" for number in range(6)], "new"]


@pytest.mark.parametrize("size", [100, CHUNK_BYTES - 5, CHUNK_BYTES, 6 * CHUNK_BYTES])
@pytest.mark.parametrize("once", [True, False])
def test_zeros_before_a_line_are_no_part_of_it(log: Path, size: int, once: bool) -> None:
    """As of a file that was made in full and is appended to, and of what lost power leaves."""
    log.write_bytes(b"one\n" + bytes(size) + b"two\nthree\n" + bytes(size) + b"four\n")
    follower = Follower(log)
    for _ in range(1 if once else 3):
        follower.poll()
    for _ in range(3):
        follower.poll(ends=True)
    assert [(each[3], each[2]) for each in follower.sent] == [
        (b"one", 0),
        (b"two", 4 + size),
        (b"three", 8 + size),
        (b"four", 14 + 2 * size),
    ]


def test_zeros_that_are_seen_before_what_belongs_there_are_waited_for(log: Path) -> None:
    """Where several threads write, or on a network's file system, what comes later may be seen first."""
    append(log, BANNER)
    follower = Follower(log)
    follower.poll()
    at = log.stat().st_size
    end = at + len("first\n")
    log.write_bytes(log.read_bytes() + bytes(len("first\n")) + b"second\n")
    follower.files.read(next(iter(follower.files.tails.values())))
    write_at(log, at, "first\n")
    follower.poll()
    assert follower.lines == [BANNER, "first", "second"]
    assert follower.sent[-1][2] == end


def test_line_that_lost_power_cut_keeps_what_there_is_of_it(log: Path) -> None:
    log.write_bytes(b"one\ntw\0\0\0\0\0three\n")
    follower = Follower(log)
    follower.poll()
    assert [each[3] for each in follower.sent] == [b"one", b"tw\0\0\0\0\0three"]


def test_long_line_before_zeros_is_kept_aside_without_them(log: Path) -> None:
    limit = CHUNK_BYTES
    log.write_bytes(b"x" * (limit + 10) + bytes(4 * CHUNK_BYTES))
    follower = Follower(log, limit_bytes=limit)
    for _ in range(3):
        follower.poll(ends=True)
    assert [each[2:] for each in follower.sent] == [(0, None)]
    (tail,) = follower.files.tails.values()
    assert tail.position == limit + 10


def test_file_of_zeros_has_nothing_to_be_read(log: Path) -> None:
    append(log, BANNER)
    allocate(log, 1 << 20, holes=False)
    follower = Follower(log)
    follower.poll()
    (tail,) = follower.files.tails.values()
    assert tail.size == tail.position == len(BANNER) + 1
    os.truncate(log, 0)
    follower.poll()
    assert follower.messages == []
