"""The loop: look for files, read, send, save what is acknowledged."""

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from headwater.errors import UserError, reason
from headwater.ship.brokers import Brokers, TopicLimits, require_topic
from headwater.ship.discovery import sizes_of
from headwater.ship.errors import ProducerLostError, ReplacedError, ShipError, StoppedError
from headwater.ship.fileset import FileSet, entry_of
from headwater.ship.frames import SpoolFrames
from headwater.ship.framing import Framing, Lines, Record
from headwater.ship.lock import only_one
from headwater.ship.progress import PROGRESS_TOPIC, Entry, entry_key, load_progress, require_progress_topic
from headwater.ship.sender import Sender
from headwater.ship.sent import SentJournal
from headwater.ship.spool import Spool
from headwater.ship.tail import Chunk, FileKey, Tail
from headwater.ship.too_long import aside_message, keep_aside
from headwater_streams.base.plural import quantity

_STOP_WAIT_S = 8.0
_SAVE_WAIT_S = 1.0
_NAMED = 10
_TIME_MARGIN_MS = 60_000
"""A record whose timestamp a topic would refuse so soon gets the time of sending, as it may wait in the queue."""
_BATCH_BYTES = 61 + 36
"""What a batch of one record has besides the record's key, value and headers, at most."""
_HEADER_BYTES = 10
"""What a record's header has besides its name and its value, at most."""
_VALUES_BYTES = 1 + 16 + 20 + 20 + len("headwater-syslog-truncated") + _HEADER_BYTES + 20
"""The values of the headers but for the shipper's name, and the header of what was cut, at most."""


@dataclass(frozen=True)
class ShipOptions:
    """What to ship, and where to.

    Attributes:
        patterns: Absolute paths and glob patterns.
        topic: Where the lines go.
        name: The shipper's name, stable over its runs.
        folder: Its own folder on this machine, for what is too long for a record, the spool, the journal and the lock.
        once: End when everything that is there is shipped.
        from_end: Leave out what is in the files at the first look.
        framing: How the files are divided.
        compression: Of the batches, as Kafka names it.
        counts: Whether it publishes how many lines the brokers acknowledged, as counted producers do.
        poll_s: How long to wait when there was nothing to read.
        scan_s: How often to look for files.
        save_s: How often progress is saved.
        close_after_s: How long a file that left the patterns has to be quiet before it is let go.
    """

    patterns: tuple[str, ...]
    topic: str
    name: str
    folder: Path
    once: bool = False
    from_end: bool = False
    framing: Framing = field(default_factory=Lines)
    compression: str = "lz4"
    counts: bool = False
    poll_s: float = 0.2
    scan_s: float = 1.0
    save_s: float = 1.0
    close_after_s: float = 60.0


@dataclass
class Totals:
    """What one run did.

    Attributes:
        lines: Lines acknowledged.
        bytes: Bytes of the files that they took.
        too_long: Lines kept in files of their own.
        files: Files that lines were sent of.
        unacknowledged: Lines that the next run sends again.
    """

    lines: int = 0
    bytes: int = 0
    too_long: int = 0
    files: int = 0
    unacknowledged: int = 0


class Shipper:
    """Ships until it is stopped, or until everything is shipped."""

    def __init__(
        self,
        options: ShipOptions,
        brokers: Brokers,
        *,
        spool: Spool,
        stop: Event,
        say: Callable[[str], None],
        report: Callable[[dict[str, Any]], None] = lambda _: None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            options: What and where to.
            brokers: The cluster.
            spool: What a syslog listener received.
            stop: Set when it is to stop.
            say: Takes a sentence for people.
            report: Takes the progress once a second, if there was any.
            check: Is called once a second; raises a ShipError where shipping cannot go on.
        """
        self.totals = Totals()
        self._options = options
        self._brokers = brokers
        self._stop = stop
        self._say = say
        self._report = report
        self._check = check
        self._refused_bytes: int | None = None
        self._reported: set[str] = set()
        self._refused_time = False
        self._oldest_ms: int | None = None
        self._spool = spool
        self._origin = [
            ("headwater-origin-cluster", options.name.encode()),
            ("headwater-origin-partition", b"0"),
        ]

    def run(self) -> Totals:
        """Ships.

        Raises:
            UserError: The brokers refuse, another shipper of the same name runs, or (once) nobody answers.
        """
        options = self._options
        # Every file that is followed is open.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with only_one(options.folder, self._brokers.bootstrap, options.topic, options.name):
            start_sizes = sizes_of(options.patterns) if options.from_end else None
            while not self._stop.is_set():
                limits = self._reach_brokers()
                if limits is None:
                    break
                limit, refused = limits.max_bytes, self._refused_bytes
                self._oldest_ms = limits.oldest_ms if not self._refused_time else 0
                if refused is not None and limit >= refused:  # it is too much, or they do not report it
                    limit = refused // 2
                try:
                    self._session(limit, start_sizes)
                    break
                except ProducerLostError as error:
                    self._say(f"starting again from the saved progress: {error}")
                    start_sizes = None
        return self.totals

    def _reach_brokers(self) -> TopicLimits | None:
        """Waits for the brokers and their topics; returns what the topic takes, or None when it is to stop."""
        is_reported = False
        while True:
            try:
                limits = require_topic(self._brokers, self._options.topic)
                require_progress_topic(self._brokers)
                progress = load_progress(self._brokers, self._options.name, self._options.topic)
            except ShipError:
                raise
            except UserError as error:
                if self._options.once:
                    raise
                if not is_reported:
                    self._say(f"waiting for the brokers, nothing is lost: {error}")
                    is_reported = True
            else:
                self._entries = [entry for _, _, entry in progress.entries]
                for sentence in progress.passed_over:
                    if sentence not in self._reported:
                        self._reported.add(sentence)
                        self._say(sentence)
                return limits
            if self._stop.wait(1):
                return None

    def _session(self, limit: int, start_sizes: Mapping[FileKey, int] | None) -> None:
        options = self._options
        self._limit_bytes = limit
        self._next_scan = self._next_save = 0.0
        self._sets: list[FileSet] = []
        self._sender = Sender(
            self._brokers,
            compression=options.compression,
            limit_bytes=limit,
            stop=self._stop,
            say=self._say,
            counts_as=options.name.replace("/", "_") if options.counts else None,
            meanwhile=self._open_new,
        )
        self._saving = 0
        self._journal = SentJournal(options.folder / "sent.jsonl", {entry.file_id for entry in self._entries})
        spooled = [entry for entry in self._entries if entry.path.endswith(".spool")]
        files = [entry for entry in self._entries if not entry.path.endswith(".spool")]
        self._files = self._follow(options.patterns, files, options.framing, start_sizes)
        self._spooled = self._follow((self._spool.pattern,), spooled, SpoolFrames())
        self._sets = [self._files, self._spooled]
        try:
            self._loop()
            self._finish()
        except StoppedError:
            self._finish()
        finally:
            self._sender.close()
            self._journal.close()
            for each in self._sets:
                each.close()

    def _follow(
        self,
        patterns: tuple[str, ...],
        entries: list[Entry],
        framing: Framing,
        start_sizes: Mapping[FileKey, int] | None = None,
    ) -> FileSet:
        return FileSet(
            patterns,
            framing,
            entries,
            limit_bytes=self._limit_bytes,
            from_end=start_sizes,
            once=self._options.once,
            close_after_s=self._options.close_after_s,
            scratch=self._options.folder,
            say=self._say,
            sent=self._journal.get,
            decided=None if patterns == (self._spool.pattern,) else self._options.folder / "left-out.json",
        )

    def _loop(self) -> None:
        while not self._stop.is_set():
            now = time.monotonic()
            is_due = now >= self._next_scan
            for each in self._sets:
                if is_due or each.stale:
                    each.scan(now, hold=each is self._files)
                    self._let_go(each, now)
            if is_due:
                self._next_scan = now + self._options.scan_s
            self._register([tail for each in self._sets for tail in each.tails.values()])
            moved = self._read_all(ends=False)
            self._sender.poll(0)
            if now >= self._next_save:
                self._next_save = now + self._options.save_s
                if self._check is not None:
                    self._check()
                self._save_all()
                self._report_progress()
            if self._options.once and not moved and not any(each.stale for each in self._sets):
                if self._files.holds:
                    if not self._files.awaits(_now_ms()):
                        self._files.scan(now, hold=False)
                    self._sender.poll(self._options.poll_s)
                elif not self._read_all(ends=True):
                    return
            elif not moved:
                self._sender.poll(self._options.poll_s)

    def _open_new(self) -> None:
        """Looks for files while it waits for the brokers, so that one that is rotated away meanwhile is open."""
        now = time.monotonic()
        if self._sets and now >= self._next_scan:
            self._next_scan = now + self._options.scan_s
            self._files.scan(now)

    def _read_all(self, *, ends: bool) -> bool:
        moved = False
        for each in self._sets:
            for tail in list(each.tails.values()):
                chunk = each.read(tail, ends=ends)
                if chunk is not None:
                    self._ship(tail, chunk)
                    moved = True
                if self._stop.is_set():
                    return moved
        return moved

    def _finish(self) -> None:
        """Waits for what was sent, and saves it; not for long if it is to stop."""

        def settled() -> bool:
            return not any(
                tail.waiting for each in self._sets for tail in [*each.tails.values(), *each.ended]
            )

        self._wait(settled, _STOP_WAIT_S)
        if not self._stop.is_set():  # all of it was read
            for tail in list(self._spooled.tails.values()):
                self._spooled.end(tail)
        # If the queue is still full, the next run goes on from what was saved before.
        with suppress(StoppedError):
            for each in self._sets:
                self._drop_ended(each)
            self._save_all()
        self._wait(lambda: not self._saving, _SAVE_WAIT_S)
        self._report_progress()
        self.totals.unacknowledged = self._sender.queued
        if self._sender.queued:
            self._say(
                f"not acknowledged: {quantity(self._sender.queued, 'record')}; the next run sends what was not"
            )
        if self._options.once and self._files.refused:
            refused = sorted(self._files.refused)
            more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
            raise ShipError(f"not shipped, as it could not be read: {', '.join(refused[:_NAMED])}{more}")

    def _wait(self, done: Callable[[], bool], stop_s: float) -> None:
        """Waits until a condition holds, but no longer than some seconds once it is to stop."""
        if self._stop.is_set() or not self._sender.wait(done):
            self._sender.wait(done, time.monotonic() + stop_s)

    def _register(self, tails: Iterable[Tail]) -> None:
        """Saves the ids of new files, all at once, before anything is sent of them."""
        new = [tail for tail in tails if not tail.registered and tail.look()]
        for tail in new:
            self._save(tail)
        if new and not self._sender.wait(lambda: not self._saving):
            raise StoppedError
        for tail in new:
            tail.registered = True
        self.totals.files += len(new)

    def _ship(self, tail: Tail, chunk: Chunk) -> None:
        tail.grown_at = time.monotonic()
        if not tail.registered or chunk.cut is not None:
            self.totals.files += not tail.registered
            self._save(tail)
            if not self._sender.wait(lambda: not self._saving):
                raise StoppedError
            tail.registered = True
        self._journal.note(tail.file_id, chunk.mark)
        key = os.fsencode(tail.path)
        origin = [*self._origin, ("headwater-origin-topic", tail.file_id.encode())]
        topic, send = self._options.topic, self._sender.send
        room = self._room(key)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.totals.lines += 1
                self._done_with_one(tail, chunk)
            else:
                self._refused(error)

        for ordinal, record in enumerate(chunk.records, chunk.first_ordinal):
            if record.is_damaged or record.value is None or len(record.value) > room:
                self._keep_long_line(tail, ordinal, record)
                self._done_with_one(tail, chunk)
                continue
            headers = [
                *origin,
                ("headwater-origin-offset", b"%d" % ordinal),
                ("headwater-origin-position", b"%d" % record.position),
            ]
            if record.full_bytes is not None:
                headers.append(("headwater-syslog-truncated", b"%d" % record.full_bytes))
            try:
                at_ms = None if record.received_ms is None else self._timestamp_ms(record.received_ms)
                send(topic, record.peer or key, record.value, headers, delivered, at_ms)
            except KafkaException as error:
                raise self._brokers.explain(error.args[0], f"topic {topic}") from error

    def _timestamp_ms(self, received_ms: int) -> int | None:
        """When a syslog message was received, if the topic takes a record of that age."""
        if self._oldest_ms is None or _now_ms() - received_ms < self._oldest_ms - _TIME_MARGIN_MS:
            return received_ms
        return None

    def _room(self, key: bytes) -> int:
        """The most bytes that a line with such a key may have: a batch of it alone is no larger than the limit.

        Raises:
            ShipError: There is no room for one.
        """
        names = ("cluster", "partition", "topic", "offset", "position")
        headers = sum(len(f"headwater-origin-{name}") + _HEADER_BYTES for name in names) + _VALUES_BYTES
        room = self._limit_bytes - _BATCH_BYTES - len(key) - headers - len(self._options.name.encode())
        if room <= 0:
            raise ShipError(
                f"batches of {self._options.topic} may have {quantity(self._limit_bytes, 'byte')}, which leaves no "
                "room for a line with its origin: raise the topic's max.message.bytes"
            )
        return room

    def _done_with_one(self, tail: Tail, chunk: Chunk) -> None:
        tail.sent_one(chunk)
        if not chunk.waiting:
            self.totals.bytes += chunk.records[-1].end - chunk.records[0].position

    def _refused(self, error: KafkaError) -> None:
        if error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            return
        if error.name() == "MSG_SIZE_TOO_LARGE":  # the topic's limit was lowered, or they do not report it
            self._refused_bytes = self._limit_bytes
        if error.name() == "INVALID_TIMESTAMP":
            self._refused_time = True
        self._sender.failure = self._sender.failure or error

    def _keep_long_line(self, tail: Tail, ordinal: int, record: Record) -> None:
        """Keeps a line that is too long for a record, or damaged, in a file of its own before progress passes it."""
        start = record.position
        parts = tail.parts(start, record.end) if record.value is None else [record.value]
        place = self._options.folder / "too-long" / f"{tail.file_id}-{ordinal}"
        try:
            count = keep_aside(place, parts)
        except ReplacedError:
            self._say(f"a line of {tail.place} at byte {start} was truncated while it was copied")
            return
        self.totals.too_long += 1
        self._say(aside_message(tail.place, record, count, self._options.topic, place))

    def _let_go(self, files: FileSet, now: float) -> None:
        """Ends the files that left the patterns and are quiet, and those of the spool that grow no more."""
        for tail in list(files.tails.values()):
            over = not self._spool.writes(tail.place) if files is self._spooled else files.can_end(tail, now)
            if not over or tail.waiting:
                continue
            chunk = files.read(tail, ends=True)
            if chunk is not None:
                self._ship(tail, chunk)
            elif files.follows(tail):
                files.end(tail)
        self._drop_ended(files)

    def _drop_ended(self, files: FileSet) -> None:
        for tail in [each for each in files.ended if not each.waiting]:
            if files is self._spooled:
                self._forget_spooled(tail.place)
            if tail.registered and (tail.replaced or tail.deleted):
                self._send_progress(tail.file_id, None)
            elif tail.registered:
                files.remember(self._save(tail, done=True))
            files.drop(tail)
        for entry in files.missed(_now_ms()):
            self._send_progress(entry.file_id, entry.to_json())
        for file_id in files.forgotten(_now_ms()):
            self._send_progress(file_id, None)

    def _forget_spooled(self, place: str) -> None:
        try:
            self._spool.remove(place)
        except OSError as error:
            raise ShipError(f"cannot remove {place}: {reason(error)}") from error

    def _save_all(self) -> None:
        for each in self._sets:
            for tail in each.tails.values():
                if tail.registered:
                    self._save(tail)

    def _save(self, tail: Tail, *, done: bool = False) -> Entry:
        entry = entry_of(tail, done=done)
        if entry != tail.saved:
            tail.saved = entry
            self._send_progress(tail.file_id, replace(entry, saved_ms=_now_ms()).to_json())
        return replace(entry, saved_ms=_now_ms())

    def _send_progress(self, file_id: str, value: bytes | None) -> None:
        self._saving += 1
        key = entry_key(self._options.name, self._options.topic, file_id)
        self._sender.send(PROGRESS_TOPIC, key, value, None, self._saved)

    def _saved(self, error: KafkaError | None, _message: Message) -> None:
        self._saving -= 1
        if error is not None and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            self._sender.failure = self._sender.failure or error

    def _report_progress(self) -> None:
        tails = [tail for each in self._sets for tail in each.tails.values()]
        progress = {
            "topic": self._options.topic,
            "lines": self.totals.lines,
            "bytes": self.totals.bytes,
            "files": len(tails),
            "lag_bytes": sum(max(tail.size - tail.acknowledged.position, 0) for tail in tails),
            "queued": self._sender.queued,
            "too_long": self.totals.too_long,
        }
        self._report(progress)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
