"""Following real files: every way in which they grow, rotate and come back, and kills between any two steps."""

import bz2
import fcntl
import gzip
import json
import lzma
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amount import amount
from followed import BANNER, Follower, append, compress, copytruncate
from headwater.ship.discovery import matching_files
from headwater.ship.fileset import DELETED_QUIET_S
from headwater.ship.known import FORGET_MS
from headwater.ship.mark import HEAD_BYTES, Mark
from headwater.ship.places import own_folder
from headwater.ship.possible_copies import HOLD_S
from headwater.ship.progress import Entry
from headwater.ship.tail import CHUNK_BYTES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_follower_growing_file_gives_each_line_once_with_its_number_and_position(log: Path) -> None:
    append(log, "one", "two")
    follower = Follower(log)
    follower.poll()
    append(log, "three")
    follower.poll()
    follower.poll()
    (file_id,) = {each[0] for each in follower.sent}
    assert follower.sent == [(file_id, 0, 0, b"one"), (file_id, 1, 4, b"two"), (file_id, 2, 8, b"three")]


def test_follower_line_without_newline_waits_for_its_end(log: Path) -> None:
    append(log, "one", "tw", end="")
    follower = Follower(log)
    follower.poll()
    assert follower.lines == ["one"]
    append(log, "o")
    follower.poll()
    assert follower.lines == ["one", "two"]


def test_follower_file_that_was_made_in_full_gives_each_line_once(log: Path) -> None:
    log.write_bytes(bytes(4096))
    follower = Follower(log)
    place = 0
    lines = [f"line {number} of a file that is written over zeros" for number in range(8)]
    for line in lines:
        with log.open("r+b") as file:
            file.seek(place)
            place += file.write(f"{line}\n".encode())
        follower.poll()
    assert [each[3] for each in follower.sent] == [line.encode() for line in lines]
    assert follower.messages == []


def test_follower_any_bytes_are_kept_but_the_line_end(log: Path) -> None:
    log.write_bytes(b"crlf\r\n\n\xff\xfe\nnul\0nul\ncr\rcr\n\r\n")
    follower = Follower(log)
    follower.poll()
    assert [each[3] for each in follower.sent] == [b"crlf", b"", b"\xff\xfe", b"nul\0nul", b"cr\rcr", b""]
    assert [each[2] for each in follower.sent] == [0, 6, 7, 10, 18, 24]


def test_follower_once_sends_the_unended_line_and_later_only_what_was_added(log: Path) -> None:
    append(log, "one", "tw", end="")
    follower = Follower(log)
    follower.poll(ends=True)
    append(log, "o", "three")
    follower.poll()
    assert follower.lines == ["one", "tw", "o", "three"]


def test_follower_killed_after_an_unended_line_cuts_it_at_the_same_byte(log: Path) -> None:
    append(log, "one", "tw", end="")
    follower = Follower(log)
    follower.poll(ends=True, save=False)
    append(log, "o", "three")
    follower.kill()
    follower.poll()
    assert follower.lines == ["one", "tw", "o", "three"]
    assert len(follower.sent) > 4, "nothing was sent twice"


def test_follower_second_cut_waits_until_the_first_is_acknowledged(log: Path) -> None:
    append(log, "tw", end="")
    follower = Follower(log)
    follower.acknowledges = False
    follower.poll(ends=True)
    append(log, "o", end="")
    follower.poll(ends=True)
    assert [each[3] for each in follower.sent] == [b"tw"]
    ((tail, chunk),) = follower.unacknowledged
    assert follower.saved[tail.file_id].cut == 2
    tail.sent_one(chunk)
    follower.poll(ends=True)
    assert [each[3] for each in follower.sent] == [b"tw", b"o"]


@pytest.mark.parametrize("save", [True, False])
def test_follower_killed_sends_what_was_not_saved_under_the_same_coordinates(log: Path, save: bool) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "two", "three")
    follower.poll(save=save)
    follower.kill()
    append(log, "four")
    follower.poll()
    assert follower.lines == ["one", "two", "three", "four"]
    assert (len(follower.sent) > 4) is not save


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_follower_killed_takes_no_file_that_begins_alike_for_the_one_that_it_sent(
    log: Path, tmp_path: Path, pattern: str
) -> None:
    long_banner = "#" * HEAD_BYTES
    append(log, long_banner, *[f"A {n}" for n in range(500)])
    follower = Follower(tmp_path / pattern)
    follower.poll(save=False)  # saved is the file, and that nothing is acknowledged
    follower.kill()
    copytruncate(log, tmp_path / "app.log.1")
    append(log, long_banner, *[f"B {n}" for n in range(500)])
    follower.poll(hold=False)
    follower.poll(hold=False)
    first, *lines = follower.lines
    assert sorted([first, *lines]) == sorted(
        [long_banner] * 2 + [f"{kind} {n}" for kind in "AB" for n in range(500)]
    )


@pytest.mark.parametrize("names", [("app.log", "app.log.1"), ("b.log", "a.log")])
def test_follower_copy_over_a_file_that_is_followed_is_known_for_one(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    log, copy = (tmp_path / name for name in names)
    append(copy, *[f"{BANNER} old {n}" for n in range(20)])
    append(log, *[f"{BANNER} new {n}" for n in range(20)])
    follower = Follower(tmp_path / "*.log*")
    follower.poll()
    for _ in range(2):
        append(log, f"{BANNER} at the end {len(follower.sent)}")
        copytruncate(log, copy)
        for _ in range(3):
            follower.poll()
        append(log, *[f"{BANNER} later {len(follower.sent) + n}" for n in range(10)])
        follower.poll()
    assert len(follower.lines) == len(set(follower.lines)) == 40 + 2 * 11


def test_follower_file_that_took_another_one_s_name_is_looked_at_by_the_next_look(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, "one")
    append(tmp_path / "app.log.1", "zero")
    follower = Follower(tmp_path / "app.log*")
    found = matching_files(follower.patterns)

    def rotated_behind(patterns: Any) -> Any:
        """What was found, of which each has the name of the next one when it is opened."""
        (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
        log.rename(tmp_path / "app.log.1")
        append(log, "two")
        monkeypatch.undo()
        return found

    monkeypatch.setattr("headwater.ship.fileset.matching_files", rotated_behind)
    follower.poll()
    follower.poll()
    assert sorted(follower.lines) == ["one", "two", "zero"]
    assert {Path(tail.place).name for tail in follower.files.tails.values()} == {
        "app.log", "app.log.1", "app.log.2",
    }  # fmt: skip
    assert {Path(tail.path).name for tail in follower.files.tails.values()} == {
        "app.log", "app.log.1", "app.log.2",
    }  # fmt: skip


def test_follower_from_end_leaves_out_whole_lines_that_are_there(log: Path, tmp_path: Path) -> None:
    append(log, "old", "half", end="")
    follower = Follower(tmp_path / "*.log", from_end=True)
    follower.poll()
    append(log, " line", "new")
    append(tmp_path / "later.log", "of a file that came later")
    follower.poll()
    assert sorted(follower.lines) == ["half line", "new", "of a file that came later"]


def test_follower_from_end_gives_what_was_written_since_the_start_though_the_first_look_is_later(
    log: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.log"
    append(log, "old")
    append(cut, "old", "and older")
    follower = Follower(tmp_path / "*.log", from_end=True)
    append(log, "new")
    cut.write_text("anew\n")
    append(tmp_path / "made.log", "since")
    follower.poll()
    assert sorted(follower.lines) == ["anew", "new", "since"]


def test_follower_from_end_leaves_out_nothing_of_a_pattern_that_has_progress(
    log: Path, tmp_path: Path
) -> None:
    append(log, "old")
    other = tmp_path / "other.log"
    follower = Follower(log, from_end=True)
    follower.poll()
    append(log, "one")
    log.rename(tmp_path / "app.log.1")
    append(log, "two")
    append(other, "not wanted")
    follower.patterns.append(str(other))
    follower.kill()
    follower.poll()
    append(other, "three")
    follower.poll()
    assert sorted(follower.lines) == ["one", "three", "two"]


def test_follower_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning(log: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "two")
    log.rename(log.with_suffix(".log.1"))
    append(log.with_suffix(".log.1"), "written by who still has it open")
    append(log, "three")
    follower.poll()
    append(log.with_suffix(".log.1"), "and more")
    follower.poll()
    assert sorted(follower.lines) == [
        "and more",
        "one",
        "three",
        "two",
        "written by who still has it open",
    ]


def test_follower_renamed_within_the_pattern_is_the_same_file(log: Path, tmp_path: Path) -> None:
    append(log, "one")
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    log.rename(tmp_path / "app.log.1")
    append(log, "two")
    follower.poll()
    follower.kill()
    follower.poll()
    assert follower.lines == ["one", "two"]
    assert len(follower.sent) == 2


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_follower_renamed_while_it_was_down_is_found_by_its_inode(
    log: Path, tmp_path: Path, pattern: str
) -> None:
    append(log, "one")
    follower = Follower(tmp_path / pattern)
    follower.poll()
    append(log, "two")
    follower.kill()
    log.rename(tmp_path / "app.log.1")
    append(log, "three")
    follower.poll()
    assert sorted(follower.lines) == ["one", "three", "two"]
    assert len(follower.sent) == 3


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("down", [True, False])
def test_follower_copied_and_truncated_file_is_read_to_its_end_in_the_copy(
    log: Path, tmp_path: Path, pattern: str, down: bool
) -> None:
    append(log, BANNER, "one")
    follower = Follower(tmp_path / pattern)
    follower.poll()
    append(log, "two")
    if down:
        follower.kill()
    copytruncate(log, tmp_path / "app.log.1")
    append(log, "three")
    follower.poll()
    follower.poll()
    assert sorted(follower.lines) == [BANNER, "one", "three", "two"]
    assert len(follower.sent) == 4


def test_follower_copy_that_is_not_followed_by_a_truncation_becomes_a_file_of_its_own(
    log: Path, tmp_path: Path
) -> None:
    append(log, BANNER, "one")
    follower = Follower(tmp_path / "*.log*")
    follower.poll()
    shutil.copyfile(log, tmp_path / "app.log.copy")
    follower.poll()
    assert len(follower.lines) == 2
    follower.now += HOLD_S
    follower.poll()
    assert follower.lines == [BANNER, "one"] * 2


def test_follower_copy_is_known_while_it_is_being_made(log: Path, tmp_path: Path) -> None:
    lines = [f"line {number:0500}" for number in range(3000)]
    append(log, BANNER, *lines)
    follower = Follower(tmp_path / "app.log*")
    while len(follower.lines) <= len(lines):
        follower.poll()
    content, copy = log.read_bytes(), tmp_path / "app.log.1"
    for end in (10, 5000, 5001, len(content) - CHUNK_BYTES, len(content)):
        copy.write_bytes(content[:end])
        follower.poll()
        follower.now += HOLD_S - 3
        follower.poll()
    append(log, "before the truncation")
    copy.write_bytes(log.read_bytes())
    log.write_bytes(b"")
    append(log, "after")
    follower.poll()
    follower.poll()
    assert sorted(follower.lines) == sorted([BANNER, *lines, "before the truncation", "after"])
    assert len(follower.sent) == len(follower.lines)


def test_follower_equal_files_are_two_files(tmp_path: Path) -> None:
    append(tmp_path / "a.log", BANNER, "one")
    append(tmp_path / "b.log", BANNER, "one")
    follower = Follower(tmp_path / "*.log")
    follower.poll()
    assert follower.lines == [BANNER, "one"]
    follower.now += HOLD_S
    follower.poll()
    assert follower.lines == [BANNER, "one"] * 2


def test_follower_equal_files_are_both_read_at_once_where_nothing_is_to_be_held(tmp_path: Path) -> None:
    append(tmp_path / "a.log", BANNER, "one")
    append(tmp_path / "b.log", BANNER, "one")
    follower = Follower(tmp_path / "*.log")
    follower.files.scan(0)
    changed_ms = (tmp_path / "b.log").stat().st_ctime_ns // 1_000_000
    assert follower.files.holds
    assert follower.files.awaits(changed_ms + 9_000)
    assert not follower.files.awaits(changed_ms + 10_000)
    follower.poll(ends=True, hold=False)
    assert follower.lines == [BANNER, "one"] * 2
    assert not follower.files.holds


@pytest.mark.parametrize("copy_name", ["app.log.1", "app-1.log"])
@pytest.mark.parametrize(
    "known", ["all", "all, and it grew", "a few bytes, and it grew", "nothing", "unsaved"]
)
@pytest.mark.parametrize("read", [True, False])
def test_follower_started_between_the_copy_and_the_truncation_knows_the_copy(
    log: Path, tmp_path: Path, known: str, copy_name: str, read: bool
) -> None:
    append(log, "a few bytes" if "few" in known else BANNER)
    follower = Follower(tmp_path / "app*log*")
    if known != "nothing":
        follower.poll(save=known != "unsaved")
        follower.kill()
    if "grew" in known:
        append(log, *[f"line {number}" for number in range(100)])
    copy = tmp_path / copy_name
    shutil.copyfile(log, copy)
    expected = sorted([*log.read_text().splitlines(), "after"])
    if read:
        follower.poll()
    else:
        follower.files.scan(follower.now)
    os.truncate(log, 0)
    follower.poll()
    append(log, "after")
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    assert sorted(follower.lines) == expected


@pytest.mark.parametrize("acknowledged", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_follower_original_that_is_read_beyond_its_copy_is_not_read_again_there(
    log: Path, tmp_path: Path, restarted: bool, acknowledged: bool
) -> None:
    lines = [f"line {number:04}" for number in range(500)]
    append(log, *lines)
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    if restarted:
        follower.kill()
    copy = tmp_path / "app.log.1"
    shutil.copyfile(log, copy)
    follower.poll()
    follower.acknowledges = acknowledged
    append(log, "lost by the truncation")
    follower.poll()
    os.truncate(log, 0)
    append(log, "after")
    follower.poll()
    append(copy, "written by who has it open")
    follower.poll()
    for tail, chunk in follower.unacknowledged:
        for _ in range(chunk.waiting):
            tail.sent_one(chunk)
    follower.acknowledges = True
    follower.poll()
    follower.poll()
    expected = [*lines, "lost by the truncation", "after", "written by who has it open"]
    assert sorted(follower.lines) == sorted(expected)
    assert len(follower.sent) == len(expected)


def test_follower_copy_that_was_written_anew_while_its_original_was_truncated_is_read(
    log: Path, tmp_path: Path
) -> None:
    append(log, *[f"first {number:04}" for number in range(500)])
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    copy = tmp_path / "app.log.1"
    shutil.copyfile(log, copy)
    follower.poll()
    append(log, "read beyond the copy")
    follower.poll()
    os.truncate(log, 0)
    append(log, *[f"second {number:04}" for number in range(500)])
    copytruncate(log, copy)
    append(log, "third")
    follower.poll()
    follower.poll()
    assert len(follower.lines) == len(set(follower.lines)) == 1002


def test_follower_copy_that_is_compressed_before_the_truncation_is_seen_is_read_to_its_end(
    log: Path, tmp_path: Path
) -> None:
    append(log, BANNER)
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    follower.kill()
    append(log, "two")
    shutil.copyfile(log, tmp_path / "app.log.1")
    follower.files.scan(follower.now)
    os.truncate(log, 0)
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.1.gz")
    append(log, "three")
    follower.poll()
    follower.poll()
    assert sorted(follower.lines) == [BANNER, "three", "two"]


def test_follower_short_file_is_never_taken_for_a_copy(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "started")
    follower = Follower(tmp_path / "*.log")
    follower.poll()
    append(tmp_path / "b.log", "started")  # by another program, at the same time
    follower.files.scan(follower.now)
    os.truncate(tmp_path / "a.log", 0)
    follower.poll()
    assert follower.lines == ["started"] * 2


def test_follower_copy_that_is_made_and_taken_away_is_not_read(log: Path, tmp_path: Path) -> None:
    append(log, BANNER)
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    shutil.copyfile(log, tmp_path / "app.log.backup")
    follower.poll()
    (tmp_path / "app.log.backup").unlink()
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    assert follower.lines == [BANNER]
    assert not follower.files.holds


def test_follower_twin_that_grows_with_a_file_is_not_held_for_ever(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "*.log")
    for number in range(int(HOLD_S) + 2):
        for name in ("a.log", "b.log"):  # as of `tee a.log b.log`
            append(tmp_path / name, f"{BANNER} {number}")
        follower.poll()
    assert len(follower.sent) == 2 * number + 2


def test_follower_file_that_outgrows_what_it_is_a_copy_of_is_not_held(log: Path, tmp_path: Path) -> None:
    append(log, BANNER)
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    shutil.copyfile(log, tmp_path / "app.log.new")
    follower.poll()
    append(tmp_path / "app.log.new", "of its own")
    follower.poll()
    assert follower.lines == [BANNER, BANNER, "of its own"]


def test_follower_deleted_twin_with_lines_of_its_own_is_read_to_its_end(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        append(tmp_path / name, BANNER)
    follower = Follower(tmp_path / "*.log")
    follower.poll()
    append(tmp_path / "b.log", "of its own")
    (tmp_path / "b.log").unlink()
    follower.poll()
    assert follower.lines == [BANNER, BANNER, "of its own"]


def test_follower_from_end_leaves_out_what_looks_like_a_copy(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        append(tmp_path / name, BANNER)
    follower = Follower(tmp_path / "*.log", from_end=True)
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    append(tmp_path / "b.log", "new")
    follower.poll()
    assert follower.lines == ["new"]


def test_follower_truncated_without_a_copy_says_what_nobody_read(log: Path) -> None:
    append(log, "one", "lo", end="")
    follower = Follower(log)
    follower.poll()
    os.truncate(log, 0)
    append(log, "two")
    follower.poll()
    assert follower.lines == ["one", "two"]
    assert follower.messages == [
        f"{log} was truncated or written anew with 2 bytes of it not read yet, and no copy is beside it"
    ]


def test_follower_shrunk_and_grown_beyond_its_place_is_a_new_file(log: Path) -> None:
    append(log, "one", "two")
    follower = Follower(log)
    follower.poll()
    log.write_text("another\nand another\n")
    follower.poll()
    assert follower.lines == ["one", "two", "another", "and another"]
    assert len({each[0] for each in follower.sent}) == 2


def test_follower_inode_used_again_is_a_new_file(log: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    log.unlink()
    append(log, "two", "three")
    follower.saved = {key: replace(each, inode=log.stat().st_ino) for key, each in follower.saved.items()}
    follower.kill()
    follower.poll()
    assert follower.lines == ["one", "two", "three"]


def test_follower_deleted_file_is_read_to_its_end_and_let_go(log: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "two", "last", end="")
    log.unlink()
    follower.poll()
    assert follower.lines == ["one", "two"]
    for _ in range(2):
        follower.now += DELETED_QUIET_S
        follower.poll()
    assert follower.lines == ["one", "two", "last"]
    assert not follower.files.tails
    assert not follower.saved


def test_follower_other_patterns_leave_the_files_of_an_earlier_run_alone(log: Path, tmp_path: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "two")
    append(tmp_path / "other.log", "three")
    follower.patterns = [str(tmp_path / "other.log")]
    follower.kill()
    follower.poll()
    assert follower.lines == ["one", "three"]
    assert not follower.files.forgotten(10**15)
    follower.patterns = [str(log)]
    follower.kill()
    follower.poll()
    assert follower.lines == ["one", "three", "two"]


def test_follower_progress_of_a_file_that_is_nowhere_is_forgotten_in_the_end(log: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    log.unlink()
    follower.kill()
    file_id = follower.sent[0][0]
    assert (follower.files.missed(1), follower.files.forgotten(10**15)) == ([], [])  # not looked for yet
    follower.poll()
    assert follower.files.forgotten(10**15) == []  # it is quiet, and was there till now
    (missed,) = follower.files.missed(1000)
    assert missed == replace(follower.saved[file_id], missed_ms=1000)
    follower.saved[file_id] = missed
    follower.kill()
    follower.poll()
    assert follower.files.missed(2000) == []
    assert follower.files.forgotten(1000 + FORGET_MS) == []
    assert follower.files.forgotten(1001 + FORGET_MS) == [file_id]


def test_follower_file_that_is_found_again_is_missed_anew(log: Path, tmp_path: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    follower.saved = {key: replace(each, missed_ms=1000) for key, each in follower.saved.items()}
    follower.kill()
    follower.poll()
    assert [each.missed_ms for each in follower.saved.values()] == [None]
    log.unlink()
    follower.kill()
    follower.poll()
    assert [each.missed_ms for each in follower.files.missed(2000)] == [2000]


def test_follower_file_that_was_read_to_its_end_is_forgotten_by_the_time_of_that(
    log: Path, tmp_path: Path
) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    log.rename(tmp_path / "elsewhere")
    for _ in range(2):
        follower.now += 60
        follower.poll()
    ((file_id, entry),) = follower.saved.items()
    assert entry.done
    assert follower.files.missed(1000) == []
    assert follower.files.forgotten(FORGET_MS) == []
    assert follower.files.forgotten(FORGET_MS + 1) == [file_id]


def test_follower_compressed_files_are_left_out(log: Path, tmp_path: Path) -> None:
    append(log, "one")
    (tmp_path / "app.log.2.gz").write_bytes(b"\x1f\x8b\nlines\n")
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    follower.poll()
    assert follower.lines == ["one"]
    message = (
        f"{log}.{{}} is compressed and left out: "
        "unless it was shipped before it was compressed, unpack it and ship that"
    )
    assert follower.messages == [message.format("2.gz")]
    (tmp_path / "app.log.3.zst").write_bytes(b"from elsewhere")
    follower.poll()
    follower.poll()
    assert follower.messages == [message.format("2.gz"), message.format("3.zst")]


def test_follower_compressed_beside_the_followed_file_it_is_made_of_is_not_told(
    log: Path, tmp_path: Path
) -> None:
    append(log, f"one {BANNER}")
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    rotated = log.rename(tmp_path / "app.log.1")
    follower.poll()
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    follower.poll()
    follower.now += DELETED_QUIET_S
    follower.poll()
    follower.poll()
    assert follower.files.tails == {}
    assert follower.messages == []


def test_follower_compressed_that_is_read_to_its_end_is_not_told(log: Path, tmp_path: Path) -> None:
    append(log, f"one {BANNER}")
    follower = Follower(tmp_path / "app.log*")
    follower.poll()
    follower.kill()
    append(log, "two")
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    follower.poll()
    assert follower.lines == [f"one {BANNER}", "two"]
    assert follower.messages == []


@pytest.mark.parametrize("compressed", [(".gz", gzip), (".bz2", bz2), (".xz", lzma), None])
def test_follower_compressed_while_it_was_down_is_read_to_its_end(
    log: Path, tmp_path: Path, compressed: tuple[str, Any] | None
) -> None:
    append(log, f"one {BANNER}")
    follower = Follower(log)
    follower.poll()
    follower.kill()
    (tmp_path / "app.log.9.gz").write_bytes(b"no gzip at all")
    (tmp_path / "app.log.8.gz").write_bytes(gzip.compress(b"another file"))
    (tmp_path / "app.log.9.xz").write_bytes(b"no xz at all")
    append(log, "two", "last", end="")
    if compressed is not None:
        suffix, by = compressed
        (tmp_path / f"app.log.1{suffix}").write_bytes(by.compress(log.read_bytes()))
    else:
        follower.saved = {key: replace(each, size=log.stat().st_size) for key, each in follower.saved.items()}
        follower.kill()
    log.unlink()
    append(log, "three")
    follower.poll()
    follower.now += DELETED_QUIET_S
    follower.poll()
    follower.poll()
    found = {f"one {BANNER}", "three"} | ({"two", "last"} if compressed else set())
    assert set(follower.lines) == found
    assert len(follower.sent) == len(found)
    gone = [f"{log} is gone, with at least 8 bytes of it not read yet"]
    assert follower.messages == ([] if compressed else gone)


def test_follower_folder_that_is_gone_is_no_error_and_its_files_go_on_when_it_is_back(tmp_path: Path) -> None:
    folder, away = tmp_path / "logs", tmp_path / "away"
    folder.mkdir()
    append(folder / "app.log", f"one {BANNER}")
    follower = Follower(folder / "app.log")
    follower.scratch = tmp_path
    follower.poll()
    folder.rename(away)
    follower.kill()
    follower.poll()
    away.rename(folder)
    append(folder / "app.log", "two")
    follower.poll()
    assert follower.lines == [f"one {BANNER}", "two"]
    assert len(follower.sent) == 2


def test_follower_compressed_is_read_to_its_end_where_it_lagged_though_it_is_old(log: Path) -> None:
    append(log, f"one {BANNER}")
    follower = Follower(log)
    follower.poll()
    append(log, "two")
    follower.poll(save=False)
    follower.kill()
    follower.saved = {
        key: replace(each, size=log.stat().st_size, saved_ms=log.stat().st_mtime_ns // 1_000_000 + 60_000)
        for key, each in follower.saved.items()
    }
    follower.kill()
    compress(log)
    follower.poll()
    assert follower.lines == [f"one {BANNER}", "two"]
    assert follower.messages == []


def test_follower_compressed_that_is_older_than_its_progress_is_not_unpacked_where_it_was_read_to_its_end(
    log: Path,
) -> None:
    append(log, f"one {BANNER}")
    follower = Follower(log)
    follower.poll()
    later_ms = log.stat().st_mtime_ns // 1_000_000 + 60_000
    follower.saved = {key: replace(each, saved_ms=later_ms) for key, each in follower.saved.items()}
    follower.kill()
    compress(log)
    follower.poll()
    assert follower.files.tails == {}
    assert follower.messages == []


def test_follower_file_that_grew_unseen_before_it_was_copied_truncated_and_compressed_is_read_to_its_end(
    log: Path, tmp_path: Path
) -> None:
    append(log, BANNER, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "two")
    copytruncate(log, tmp_path / "app.log.1")
    compress(tmp_path / "app.log.1")
    append(log, "three")
    follower.poll()
    assert sorted(follower.lines) == sorted([BANNER, "one", "two", "three"])
    assert follower.messages == []


@pytest.mark.parametrize("suffix", [".gz", ".lz4"])
def test_follower_copied_truncated_and_compressed_file_is_read_to_its_end_in_what_can_be_unpacked(
    log: Path, tmp_path: Path, suffix: str
) -> None:
    append(log, BANNER, "one", "tw", end="")
    follower = Follower(log)
    follower.acknowledges = False
    follower.poll()
    append(log, "o")
    (tmp_path / "app.log.0.gz").write_bytes(gzip.compress(f"{BANNER}\nanother\n".encode()))
    copytruncate(log, tmp_path / "app.log.1")
    packed = compress(tmp_path / "app.log.1").rename(tmp_path / f"app.log.1{suffix}")
    if suffix != ".gz":
        packed.write_bytes(b"\x04\x22\x4d\x18" + packed.read_bytes())
    append(log, "three")
    follower.poll()
    follower.poll()
    for tail, chunk in follower.unacknowledged:
        for _ in chunk.records:
            tail.sent_one(chunk)
    follower.acknowledges = True
    follower.now += DELETED_QUIET_S
    follower.poll()
    follower.poll()
    message = (
        f"{log} was truncated or written anew with 2 bytes of it not read yet, "
        f"and no copy is beside it, unless it is {log}.1.lz4, which is not unpacked here"
    )
    assert sorted(follower.lines) == sorted([BANNER, "one", "three"] + (["two"] if suffix == ".gz" else []))
    assert follower.messages == ([] if suffix == ".gz" else [message])
    assert [Path(each.place).name for each in follower.saved.values()] == ["app.log"]


def test_follower_symbolic_link_stands_for_its_target_and_both_are_one_file(tmp_path: Path) -> None:
    append(tmp_path / "app-1.log", "one")
    link = tmp_path / "current.log"
    link.symlink_to("app-1.log")
    follower = Follower(link, tmp_path / "app-*.log")
    follower.poll()
    append(tmp_path / "app-2.log", "two")
    link.unlink()
    link.symlink_to("app-2.log")
    append(tmp_path / "app-1.log", "late")
    follower.poll()
    assert follower.lines == ["one", "late", "two"]
    assert len(follower.sent) == 3


def test_follower_link_alone_follows_where_it_points_now(tmp_path: Path) -> None:
    append(tmp_path / "app-1.log", "one")
    link = tmp_path / "current.log"
    link.symlink_to("app-1.log")
    follower = Follower(link)
    follower.poll()
    append(tmp_path / "app-1.log", "late")
    append(tmp_path / "app-2.log", "two")
    link.unlink()
    link.symlink_to("app-2.log")
    follower.poll()
    assert sorted(follower.lines) == ["late", "one", "two"]


def test_follower_hole_of_a_truncated_file_is_no_line(log: Path) -> None:
    with log.open("wb") as writer:  # without O_APPEND: it goes on where it was
        writer.write(b"one\n" * 5000)
        writer.flush()
        follower = Follower(log)
        follower.poll()
        os.truncate(log, 0)
        writer.write(b"two\n")
        writer.flush()
        follower.poll()
    assert follower.lines == ["one"] * 5000 + ["two"]
    assert follower.sent[-1][2] == 20000


def test_follower_long_line_goes_whole_up_to_the_limit_and_aside_above_it(log: Path) -> None:
    long, longer = "x" * (3 * CHUNK_BYTES), "y" * (9 * CHUNK_BYTES)
    append(log, "one", long, longer, "two")
    follower = Follower(log)
    follower.poll()
    assert [each[3] for each in follower.sent] == [b"one", long.encode(), None, b"two"]
    assert [each[1] for each in follower.sent] == [0, 1, 2, 3]


def test_follower_long_line_that_grows_slowly_is_not_taken_before_its_end(log: Path) -> None:
    follower = Follower(log, limit_bytes=CHUNK_BYTES)
    for _ in range(5):
        append(log, "x" * CHUNK_BYTES, end="")
        follower.poll()
        assert follower.sent == []
    append(log, "", "next")
    follower.poll()
    assert [each[2:] for each in follower.sent] == [(0, None), (5 * CHUNK_BYTES + 1, b"next")]


@pytest.mark.parametrize("once", [True, False])
def test_follower_file_that_may_not_be_read_is_named_once(
    log: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    append(log, "one")

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    follower = Follower(log)
    follower.once = once
    follower.kill()
    with monkeypatch.context() as patch:
        patch.setattr("headwater.ship.fileset.os.open", refuse)
        follower.poll()
        follower.poll()
        assert follower.files.refused == {str(log)}
    assert follower.messages == [
        f"cannot read {log}: permission denied" + ("" if once else "; it is tried again")
    ]
    follower.poll()
    assert follower.lines == ["one"]
    assert follower.files.refused == set()


def test_follower_file_that_may_not_be_read_and_goes_away_is_not_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, "one")

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    follower = Follower(log)
    with monkeypatch.context() as patch:
        patch.setattr("headwater.ship.fileset.os.open", refuse)
        follower.poll()
    log.unlink()
    follower.poll()
    assert follower.files.refused == set()


@pytest.mark.parametrize("once", [True, False])
def test_follower_folder_that_cannot_be_looked_into_is_named_once_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    append(folder / "app.log", "one")
    follower = Follower(tmp_path / "*" / "*.log")
    follower.once = once
    follower.kill()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path) == str(folder):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", refuse)
        follower.poll()
        follower.poll()
        assert follower.files.refused == {str(folder)}
    again = "" if once else "; it is tried again"
    assert follower.messages == [f"cannot read {folder}: permission denied{again}"]
    follower.poll()
    assert follower.lines == ["one"]
    assert follower.files.refused == set()


def test_follower_leaves_descriptors_to_others_and_says_once_that_they_are_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(8):
        append(tmp_path / f"{number}.log", f"of {number}")
    real_open = os.open
    above = 1 + max(
        int(each.name) for each in Path("/proc/self/fd").iterdir()
    )  # other tests may have left many open

    def open_above(path: Any, flags: int, *more: Any, **named: Any) -> int:
        fd = real_open(path, flags, *more, **named)
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
        finally:
            os.close(fd)

    monkeypatch.setattr("os.open", open_above)
    monkeypatch.setattr("resource.getrlimit", lambda _: (above + 4 + 64, 1 << 20))
    follower = Follower(tmp_path / "*.log")
    follower.poll()
    follower.poll()
    assert len(follower.lines) == len(follower.files.refused) == 4
    (message,) = follower.messages
    assert "raise that, as with ulimit -n; it is tried again" in message
    for tail in list(follower.files.tails.values()):
        Path(tail.path).unlink()
    for _ in range(4):
        follower.now += 2 * DELETED_QUIET_S
        follower.poll()
    assert len(follower.lines) == 8
    assert follower.files.refused == set()


def test_follower_progress_waits_for_the_acknowledgement_of_what_came_before(log: Path) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.acknowledges = False
    follower.poll()
    append(log, "two")
    follower.poll()
    (tail, first), (_, second) = follower.unacknowledged
    tail.sent_one(second)
    assert tail.acknowledged.position == 0
    tail.sent_one(first)
    assert tail.acknowledged.position == 8


STEPS = st.lists(
    st.sampled_from(
        [
            "append",
            "append",
            "part",
            "poll",
            "poll",
            "unsaved",
            "kill",
            "rename",
            "copytruncate",
            "restart_before_truncation",
            "read_beyond_copy",
            "overwrite",
            "overwrite_restart",
            "recreate",
            "rewrite",
            "wait",
        ]
    ),
    max_size=30,
)


class Writer:
    """Writes lines that are all different, and rotates as log rotation does."""

    def __init__(self, log: Path, archive: Path, follower: Follower) -> None:
        self.log, self.archive, self.follower = log, archive, follower
        self.written: dict[str, int] = {}
        self.open_line = ""
        self.generation = 0
        self._begin()

    def _begin(self) -> None:
        self.generation += 1
        self._line(f"{self.generation} {BANNER}")
        # What is truncated before its first bytes were read cannot be known again in its copy.
        self.follower.poll()

    def _line(self, text: str) -> None:
        text = self.open_line + text
        append(self.log, text[len(self.open_line) :])
        self.open_line = ""
        self.written[text] = self.generation

    def append(self) -> None:
        self._line(f"line {len(self.written)}")

    def part(self) -> None:
        part = f"part {len(self.written)}.{len(self.open_line)} "
        self.open_line += part
        append(self.log, part, end="")

    def _shift(self) -> None:
        self.append()  # rotation between two lines
        for number in range(9, 0, -1):
            older = self.archive / f"app.log.{number}"
            if older.exists():
                older.rename(self.archive / f"app.log.{number + 1}")

    def rename(self) -> None:
        self._shift()
        self.log.rename(self.archive / "app.log.1")
        self._begin()

    def rewrite(self) -> None:
        """As `sed -i` and rsync do it."""
        new = self.log.with_name("sedXXXX")
        shutil.copyfile(self.log, new)
        new.rename(self.log)
        self._line(f"line {len(self.written)}")
        self.follower.poll()  # what is renamed twice between two looks may be out of the patterns

    def copytruncate(self) -> None:
        self._shift()
        self._copytruncate()

    def restart_before_truncation(self) -> None:
        self._shift()
        self._copytruncate(self.follower.kill, self.follower.poll)

    def read_beyond_copy(self) -> None:
        self._line(
            f"line {len(self.written)} {'#' * HEAD_BYTES}"
        )  # a shorter one is not known by its beginning
        self._shift()
        self._copytruncate(self.follower.poll, self.append, self.follower.poll)

    def _copytruncate(self, *between: Callable[[], None]) -> None:
        shutil.copyfile(self.log, self.archive / "app.log.1")
        for step in between:
            step()
        os.truncate(self.log, 0)
        self._begin()

    def overwrite(self) -> None:
        """As a script does that keeps one copy: `cp app.log app.log.1; : > app.log`."""
        self.append()
        self.follower.poll()  # what is overwritten while nobody has read it is gone
        self._copytruncate()

    def overwrite_restart(self) -> None:
        self.append()
        self.follower.poll()
        self._copytruncate(self.follower.kill, self.follower.poll)

    def recreate(self) -> None:
        self.append()
        self.follower.poll()  # what is deleted while nobody has it open is gone
        self.log.unlink()
        self._begin()


@pytest.mark.parametrize(
    ("patterns", "archive"),
    [(("app.log",), "."), (("app.log*",), "."), (("app.log", "old/*"), "old"), (("**/app.log*",), "old")],
)
def test_follower_any_history_gives_every_line_once_and_in_the_order_of_its_file(
    patterns: tuple[str, ...], archive: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(
        max_examples=amount("HEADWATER_HISTORIES", small=20, full=60),
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(STEPS)
    def run(steps: list[str]) -> None:
        folder = tmp_path_factory.mktemp("logs")
        (folder / archive).mkdir(exist_ok=True)
        follower = Follower(*(folder / each for each in patterns))
        follower.scratch = folder
        writer = Writer(folder / "app.log", folder / archive, follower)
        others: dict[str, Callable[[], None]] = {
            "poll": follower.poll,
            "unsaved": lambda: follower.poll(save=False),
            "kill": follower.kill,
            "wait": lambda: setattr(follower, "now", follower.now + 100),
        }
        for step in steps:
            (others[step] if step in others else getattr(writer, step))()
        writer.append()
        follower.poll()
        follower.poll()
        arrived = defaultdict(list)
        for line in follower.lines:
            arrived[writer.written[line]].append(line)
        expected = defaultdict(list)
        for line, generation in writer.written.items():
            expected[generation].append(line)
        assert arrived == expected
        follower.kill()

    run()


@pytest.mark.parametrize("form", ["", ".gz"])
def test_follower_progress_that_names_a_folder_beyond_the_patterns_reads_nothing_there(
    log: Path, tmp_path: Path, form: str
) -> None:
    """Whoever may write to the progress topic must not have other files read and sent."""
    secret = tmp_path / "private" / "secret"
    secret.parent.mkdir()
    append(secret, "x" * 2 * HEAD_BYTES, "password")
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    (real,) = follower.saved.values()
    fd = os.open(secret, os.O_RDONLY)
    head = os.pread(fd, HEAD_BYTES, 0)
    os.close(fd)
    inode, device = secret.stat().st_ino, secret.stat().st_dev
    if form:
        compress(secret)
    for number, place in enumerate(
        (str(secret), f"{tmp_path}/x/../private/secret", "private/secret", "\0", "")
    ):
        marks = Mark.of(HEAD_BYTES, head, b""), Mark.of(0, b"", b"")
        for mark in marks:
            forged = replace(
                real,
                file_id=f"{number:016}",
                path=place,
                place=place,
                inode=inode,
                device=device,
                mark=mark,
                size=mark.position + 1,
            )
            follower.saved = {real.file_id: real, forged.file_id: forged}
            follower.kill()
            follower.poll()
            assert follower.lines == ["one"]
            assert follower.messages == []


def test_follower_file_behind_a_link_is_looked_for_where_it_was(log: Path, tmp_path: Path) -> None:
    behind = tmp_path / "data" / "app.log"
    behind.parent.mkdir()
    append(behind, "x" * HEAD_BYTES, "one")
    log.symlink_to(behind)
    follower = Follower(log)
    follower.poll()
    append(behind, "two")
    behind.rename(behind.with_suffix(".1"))
    append(behind, "three")
    follower.kill()
    follower.poll()
    assert follower.lines[1:] == ["one", "two", "three"]


def test_own_folder_of_each_name_is_its_own_and_within_the_home(tmp_path: Path) -> None:
    names = [
        "a/b",
        "a_b",
        "a%2Fb",
        "../x",
        "..%2Fx",
        "./x",
        "/x",
        "a b",
        "a\nb",
        "a\0b",
        "né",
        ".x",
        "x.",
        "a\\b",
        "%",
    ]
    folders = [own_folder(tmp_path, name, "logs") for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.parent.parent == tmp_path / "ship"
        assert ".." not in folder.parts
        folder.mkdir(parents=True)
        assert folder.resolve().parent.parent == (tmp_path / "ship").resolve()


def test_follower_progress_under_an_id_that_nobody_drew_names_no_file(log: Path, tmp_path: Path) -> None:
    """A line that is too long for a record is kept in a file of that name."""
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    (real,) = follower.saved.values()
    for file_id in ("../../x", "/x", "", "..", "f" * 15, "F" * 16, "\u0661" * 16, "0123456789abcde\n"):
        follower.saved = {file_id: replace(real, file_id=file_id)}
        follower.kill()
        follower.poll()
        assert all(tail.file_id != file_id for tail in follower.files.tails.values())


@pytest.mark.parametrize(
    "change",
    [{"ordinal": "../x"}, {"place": 1}, {"file_id": None}, {"mark": {"position": "0"}}, {"cut": 1.5}],
)
def test_entry_with_a_value_of_another_type_is_none(log: Path, change: dict[str, Any]) -> None:
    append(log, "one")
    follower = Follower(log)
    follower.poll()
    (real,) = follower.saved.values()
    assert Entry.from_json(real.to_json()) == real
    value = json.loads(real.to_json())
    forged = {**value, **change, "mark": {**value["mark"], **change.get("mark", {})}}
    with pytest.raises(ValueError, match="no entry of"):
        Entry.from_json(json.dumps(forged).encode())
