"""The shipper's own files, gone, empty, overwritten, cut or with a bit flipped: every message and line that is whole is
sent, none twice under other coordinates, and what is none is told and kept."""

import random
from pathlib import Path

import pytest

from amount import drawn_seed
from damaged_files import DAMAGES
from followed import Follower, append
from headwater.ship.discovery import Match
from headwater.ship.frames import SpoolFrames, frame
from headwater.ship.left_out import LeftOut
from headwater.ship.lock import only_one
from headwater.ship.mark import Mark
from headwater.ship.sent import SentJournal
from headwater.ship.syslog import SyslogMessage
from headwater.ship.tail import CHUNK_BYTES

PEER = b"192.0.2.7"
TIME_MS = 1_764_409_500_000
MESSAGES = [b"<34>message %d: %s" % (number, b"x" * number) for number in range(6)]
BODY = b"".join(frame(PEER, each, received_ms=TIME_MS) for each in MESSAGES)


def whole_of(body: bytes) -> list[bytes]:
    """The messages of a spool file, of which every byte is in a record."""
    records = SpoolFrames().split(body, 0, ends=True)
    assert [each.position for each in records] == [0, *(each.end for each in records)][: len(records)]
    return [each.value or b"" for each in records if not each.is_damaged]


def test_spool_file_of_which_any_bit_is_flipped_loses_one_message_at_most_and_says_so() -> None:
    for bit in range(len(BODY) * 8):
        data = bytearray(BODY)
        data[bit // 8] ^= 1 << bit % 8
        records = SpoolFrames().split(bytes(data), 0, ends=True)
        assert records[-1].end == len(data), bit
        found = whole_of(bytes(data))
        assert [each for each in MESSAGES if each in found] == found, bit
        lost = len(MESSAGES) - len(found)
        assert lost == sum(each.is_damaged for each in records) <= 1, bit


def test_spool_file_that_is_cut_gives_the_messages_before_the_cut() -> None:
    ends = [each.end for each in SpoolFrames().split(BODY, 0, ends=True)]
    for length in range(len(BODY)):
        records = SpoolFrames().split(BODY[:length], 0, ends=True)
        whole = sum(end <= length for end in ends)
        # A last one whose newline alone is missing was never accepted either.
        assert [each.value for each in records] == MESSAGES[:whole], length


@pytest.mark.parametrize("blank", [b"\0" * 700, b"\xff garbage " * 30, b"\n" * 9, b"12 x", b"9999999 a b\n"])
@pytest.mark.parametrize("at", [0, 2, 5])
def test_spool_file_that_is_overwritten_in_part_gives_what_is_left(blank: bytes, at: int) -> None:
    starts = [each.position for each in SpoolFrames().split(BODY, 0, ends=True)]
    data = BODY[: starts[at]] + blank + b"\n" + BODY[starts[at] :]
    assert whole_of(data) == MESSAGES


def test_message_that_holds_what_looks_like_a_frame_is_one_message() -> None:
    forged = b"<34>a\n" + frame(b"10.0.0.1", b"<34>forged", received_ms=TIME_MS) + b"b"
    body = frame(PEER, forged, received_ms=TIME_MS) + frame(PEER, b"<34>next", received_ms=TIME_MS)
    assert whole_of(body) == [forged, b"<34>next"]
    # As long as the rest of it has not come, and where it never came: unless that was cut off just behind what looks
    # like a frame.
    seeming_end = body.index(b"<34>forged\n") + len(b"<34>forged\n")
    for length in range(1, body.index(b"<34>next") - 40):
        assert SpoolFrames().split(body[:length], 0, ends=False) == [], length
        assert length == seeming_end or whole_of(body[:length]) == [], length
    damaged = body.replace(b"<34>a", b"<35>a")
    assert whole_of(damaged) == [b"<34>next"]


def test_garbage_of_many_beginnings_takes_no_long_time() -> None:
    for text in (b"\n9 a b", b"\n1 x y\n", b"\n12 abc d"):
        body = b"x" + text * (CHUNK_BYTES // len(text))
        kept = sum(each.end - each.position for each in SpoolFrames().split(body, 0, ends=True))
        assert len(body) - 20 < kept <= len(body)  # its last bytes may be the beginning of a frame


class Spooled(Follower):
    """A follower of a spool's folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "*.spool")
        self.framing = SpoolFrames()
        self.files.close()
        self.files = self._start()


@pytest.mark.parametrize("damage", DAMAGES)
def test_spool_file_damaged_while_the_shipper_is_stopped_is_not_sent_again(
    tmp_path: Path, damage: str
) -> None:
    path, other = tmp_path / "1.spool", tmp_path / "2.spool"
    half = BODY.index(b"message 3") - 40
    path.write_bytes(BODY[:half])
    other.write_bytes(BODY)
    follower = Spooled(tmp_path)
    follower.poll(hold=False)
    sent = len(follower.sent)
    assert sent == 3 + 6
    with path.open("ab") as file:
        file.write(BODY[half:])
    follower.kill()
    random_ = random.Random(drawn_seed())
    if damage == "one bit":
        data = bytearray(path.read_bytes())
        data[random_.randrange(half)] ^= 1 << random_.randrange(8)
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(BODY[: random_.randrange(half)])
    else:
        DAMAGES[damage](path)
    follower.poll(ends=True, hold=False)
    later = [value for file_id, _, _, value in follower.sent[sent:]]
    assert not set(MESSAGES[:3]) & set(later)
    if damage == "one bit":
        assert later == MESSAGES[3:]


def mark(position: int) -> Mark:
    return Mark.of(position, b"head", b"tail")


@pytest.mark.parametrize("damage", DAMAGES)
def test_journal_that_is_damaged_is_no_reason_to_take_a_file_for_another(tmp_path: Path, damage: str) -> None:
    place = tmp_path / "sent.jsonl"
    journal = SentJournal(place, ())
    for position in range(3):
        journal.note("a", mark(position))
    journal.close()
    whole = place.read_bytes()
    bits = range(len(whole) * 8) if damage == "one bit" else [0]
    for bit in bits:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        place.write_bytes(data if damage == "one bit" else whole)
        if damage != "one bit":
            DAMAGES[damage](place)
        again = SentJournal(place, {"a"})
        again.close()
        assert again.get("a") in (None, mark(0), mark(1), mark(2)), bit


def test_journal_of_a_version_that_wrote_no_checksums_is_read(tmp_path: Path) -> None:
    place = tmp_path / "sent.jsonl"
    journal = SentJournal(place, ())
    journal.note("a", mark(7))
    journal.close()
    place.write_bytes(place.read_bytes().partition(b"\t")[0] + b"\n")
    again = SentJournal(place, {"a"})
    again.close()
    assert again.get("a") == mark(7)


@pytest.mark.parametrize("damage", DAMAGES)
def test_list_of_compressed_files_that_is_damaged_has_them_told_again_at_most(
    tmp_path: Path, damage: str
) -> None:
    packed, place = tmp_path / "app.log.1.gz", tmp_path / "left-out.json"
    packed.write_bytes(b"\x1f\x8b" + b"x" * 99)
    stat = packed.stat()
    found = {(stat.st_dev, stat.st_ino): Match(str(packed), str(packed))}

    def tell() -> list[str]:
        sentences: list[str] = []
        LeftOut([str(packed)], 0, place, say=sentences.append).report_new(found, lambda *_: False)
        return sentences

    assert len(tell()) == 1
    assert tell() == []
    DAMAGES[damage](place)
    assert len(tell()) <= 1
    assert tell() == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_lock_may_hold_anything(tmp_path: Path, damage: str) -> None:
    with only_one(tmp_path, "b:1", "t", f"n-{damage}"):
        pass
    (tmp_path / "lock").write_text("something")
    DAMAGES[damage](tmp_path / "lock")
    with only_one(tmp_path, "b:1", "t", f"n-{damage}"):
        pass


def test_lines_of_files_are_as_before(tmp_path: Path) -> None:
    """Only the spool's files are known by their names: another file of a log's name is another file."""
    log = tmp_path / "app.log"
    append(log, "one" * 30, "two")
    follower = Follower(log)
    follower.poll()
    follower.kill()
    log.write_text("another" * 30 + "\n")
    follower.poll()
    assert follower.lines[-1] == "another" * 30


def test_message_that_was_cut_keeps_its_length() -> None:
    body = frame(PEER, *SyslogMessage(b"<34>begin", 700), received_ms=TIME_MS)
    (record,) = SpoolFrames().split(body, 0, ends=True)
    assert (record.value, record.full_bytes, record.received_ms) == (b"<34>begin", 700, TIME_MS)
