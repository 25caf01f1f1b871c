"""The journal of what may have been sent: read again as it was written, also where its last line is cut."""

from pathlib import Path

import pytest

from headwater.ship.errors import ShipError
from headwater.ship.mark import Mark
from headwater.ship.sent import SentJournal


def mark(position: int) -> Mark:
    return Mark.of(position, b"head", b"tail")


def newest(place: Path) -> Mark | None:
    journal = SentJournal(place, {"a"})
    journal.close()
    return journal.get("a")


def test_sent_journal_gives_the_newest_mark_of_the_files_that_are_known(tmp_path: Path) -> None:
    place = tmp_path / "sent.jsonl"
    journal = SentJournal(place, ())
    for position in range(3):
        journal.note("a", mark(position))
    journal.note("b", mark(7))
    journal.close()
    again = SentJournal(place, {"a", "c"})
    assert (again.get("a"), again.get("b"), again.get("c")) == (mark(2), None, None)
    again.close()


@pytest.mark.parametrize("left", [b'["a",{"position":9', b"\0\0\0\n", b"[1,2]\n", b'["a",{"pos":1}]\n'])
def test_sent_journal_passes_over_what_a_lost_power_left_of_a_line(tmp_path: Path, left: bytes) -> None:
    place = tmp_path / "sent.jsonl"
    journal = SentJournal(place, ())
    journal.note("a", mark(1))
    journal.close()
    place.write_bytes(place.read_bytes() + left)
    again = SentJournal(place, {"a"})
    assert again.get("a") == mark(1)
    again.note("a", mark(2))
    again.close()
    assert newest(place) == mark(2)


def test_sent_journal_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.ship.sent._LONGEST_BYTES", 1000)
    journal = SentJournal(tmp_path / "sent.jsonl", ())
    for position in range(100):
        journal.note("a", mark(position))
        assert (tmp_path / "sent.jsonl").stat().st_size < 2000
    journal.close()
    assert newest(tmp_path / "sent.jsonl") == mark(99)


def test_sent_journal_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ShipError, match=r"cannot write .*: no such file or directory"):
        SentJournal(tmp_path / "none" / "sent.jsonl", ())
