"""Sends what jobs read and write as events of OpenLineage: to a file, or to a receiver over HTTP.

The ledger is the outbox. What was committed and not told is looked for there, so no event is lost while a receiver is
away, or when a job is killed; jobs never wait for a receiver, and know nothing of one.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from itertools import islice
from pathlib import Path
from typing import Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from deltalake.exceptions import DeltaError

from headwater import __version__
from headwater.config import load_settings
from headwater.config.settings import LineageSettings
from headwater.errors import UsageError, UserError, reason
from headwater.running.clusters import Clusters
from headwater.running.posting import poster
from headwater_streams.ledger.known_columns import known_columns
from headwater_streams.ledger.openlineage import Columns, Event, Place, events_of
from headwater_streams.ledger.sent_lineage import SentLineage, remember_sent, sent_lineage, untold_runs
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.files import locked
from headwater_streams.storage.home import Home

_ENDPOINT = "/api/v1/lineage"
_OWN_SCHEMA, _LOCK = "headwater.", "lineage.lock"
_TICK_S, _LAST_S = 5.0, 5.0
_FOR_GOOD = (400, 413, 422)
"""The statuses of an event that is wrong, or too large: it would be refused again, and hold up all behind it."""
_SERVERS_FAULT = 500
"""From here on statuses leave open what is at fault: Marquez has 500 for an event that it cannot store, too."""
_TRIES_S = (0.3, 0.6, 1.2, 2.4, 4.8)
"""The pauses before an event is sent again: as many, and as long, as OpenLineage's own client in Python has."""
_BEHIND = 64
"""So far behind a run at which the receiver fails another is looked for that it takes."""
_MOVED = (301, 302, 303, 307, 308)


class Destination(Protocol):
    """Where events go."""

    def send(self, events: Sequence[Event]) -> None:
        """Sends events, in their order.

        Raises:
            RefusedEventError: The receiver takes them for wrong, and would again.
            FailedEventError: It failed, or did not answer: they may be why, or it is not well.
            UserError: They did not arrive.
        """


class RefusedEventError(UserError):
    """A receiver does not want an event, however often it is sent."""


class FailedEventError(UserError):
    """A receiver fails at an event: the event is why, or the receiver would fail at any."""


class FileDestination:
    """A file, one event a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, events: Sequence[Event]) -> None:
        """Appends events; a write that fails leaves whole lines and at most one that is cut."""
        text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
        try:
            if self._is_cut():
                text = f"\n{text}"
            with self._path.open("a", encoding="utf-8") as lines:
                lines.write(text)
        except OSError as error:
            raise UserError(f"lineage cannot be written to {self._path}: {reason(error)}") from error

    def _is_cut(self) -> bool:
        """Whether the last line has no end, as a write failed or its process was killed."""
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as lines:
            lines.seek(-1, os.SEEK_END)
            return lines.read(1) != b"\n"


class HttpDestination:
    """A receiver such as Marquez, which takes one event a request."""

    def __init__(self, url: str, api_key: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._url = url if parts.path.strip("/") else f"{url.rstrip('/')}{_ENDPOINT}"
        self._headers = {"Content-Type": "application/json", "User-Agent": f"headwater/{__version__}"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._opener = poster()

    def send(self, events: Sequence[Event]) -> None:
        """Posts events, each by itself."""
        for event in events:
            body = json.dumps(event, separators=(",", ":")).encode()
            try:
                request = Request(self._url, body, self._headers, method="POST")  # noqa: S310 - the scheme was checked
                with self._opener.open(request, timeout=self._timeout_s):
                    pass
            except HTTPError as error:
                text = error.read(300).decode("utf-8", "replace").strip()
                hint = ": lineage.api_key is to be what it asks for" if error.code in (401, 403) else ""
                if error.code in _MOVED:
                    hint = f": it is at {error.headers.get('Location', 'another address')}, which lineage.to is to name"
                kind = RefusedEventError if error.code in _FOR_GOOD else UserError
                kind = FailedEventError if error.code >= _SERVERS_FAULT else kind
                raise kind(
                    f"the receiver of lineage at {self._url} refused an event with {error.code}{hint}"
                    + (f" ({text})" if text else "")
                ) from error
            except (OSError, HTTPException) as error:  # URLError and time-outs are OSErrors
                cause = getattr(error, "reason", error)
                refused = isinstance(cause, ConnectionRefusedError)
                is_away = refused or (isinstance(error, URLError) and not isinstance(cause, ConnectionError))
                kind = UserError if is_away else FailedEventError
                raise kind(f"no receiver of lineage answers at {self._url} ({cause})") from error


def destination_of(settings: LineageSettings) -> Destination:
    """Where the settings send events.

    Raises:
        UsageError: `lineage.to` is neither a file nor an address.
    """
    try:
        parts = urlsplit(settings.to)
        has_host, secret = bool(parts.hostname) and parts.port != 0, parts.password or parts.username
    except ValueError as error:
        raise UsageError(f"lineage.to {settings.to!r} is no address ({error})") from error
    if secret:
        raise UsageError("lineage.to has a name or a password in it: lineage.api_key is the place for one")
    if parts.scheme in ("http", "https") and has_host:
        return HttpDestination(settings.to, settings.api_key.get_secret_value(), settings.timeout_s)
    if "://" in settings.to:
        raise UsageError(
            f"lineage.to {settings.to!r}: give a file, or an address that begins with http:// or https://"
        )
    path = Path(settings.to).expanduser()
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"lineage.to {settings.to!r}: give a file in a folder that exists")
    return FileDestination(path)


@dataclass(frozen=True, kw_only=True)
class _Failed:
    """A run at which the receiver failed, and those behind it.

    Attributes:
        table: The table.
        version: The last version that the run tells of.
        events: Its events.
        behind: The next runs of the table.
        error: What the receiver did.
    """

    table: str
    version: int
    events: Sequence[Event]
    behind: Iterator[tuple[int, Sequence[Event]]]
    error: FailedEventError


class LineageSender:
    """Tells a destination what was committed since it was told last.

    Args:
        home: The home.
        settings: Where to, and how often.
        brokers: The brokers of each cluster by its name, those of topics without one under "".
        destination: Where to; by default what the settings say.
        now_ms: The clock.
    """

    def __init__(
        self,
        home: Path,
        settings: LineageSettings,
        brokers: Mapping[str, str],
        *,
        destination: Destination | None = None,
        now_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._home, self._now_ms = Home(home), now_ms
        self._destination = destination_of(settings) if destination is None else destination
        self._to = _address(settings.to)
        self._place = Place(
            namespace=settings.namespace,
            version=__version__,
            tables=str((home / "tables").absolute()),
            brokers=brokers,
            period_ms=settings.period_s * 1000,
        )
        self._spark = _installed("pyspark")
        self.refused: list[str] = []
        """A sentence for each run that the receiver does not want; they count as told."""

    def send(
        self,
        tables: Sequence[str] | None = None,
        *,
        finished: bool,
        is_over: Callable[[], bool] = lambda: False,
        waits: bool = True,
    ) -> int:
        """Sends the runs that were not told; returns how many.

        Args:
            tables: The tables; by default all that jobs write.
            finished: Only runs whose period is over.
            is_over: Is asked between runs, and ends the sending; the others are told next time.
            waits: Whether to wait for another process of the home that sends; else nothing is sent.

        Raises:
            UserError: The destination did not take one; those before it are remembered as told.
            DamagedFileError: A table cannot be read; all others were told.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._home.root / _LOCK, waits=waits))
            except BlockingIOError:
                return 0
            return self._send(self._home.tables() if tables is None else tables, finished, is_over)

    def _send(self, tables: Sequence[str], finished: bool, is_over: Callable[[], bool]) -> int:
        sent, columns, count = sent_lineage(self._home), known_columns(self._home), 0
        now_ms = self._now_ms() if finished else None
        taken: Sequence[Event] | None = None
        while True:
            unread, failed = list[Exception](), list[_Failed]()
            for table in tables:
                if table.startswith(_OWN_SCHEMA):
                    continue
                runs = self._untold(table, sent.of(self._to, table), now_ms, columns.get(table), unread)
                for version, events in runs:
                    if is_over():
                        return count
                    try:
                        taken = events if self._is_taken(table, version, events) else taken
                    except FailedEventError as error:
                        failed.append(
                            _Failed(table=table, version=version, events=events, behind=runs, error=error)
                        )
                        break  # the other tables first: what they have tells whether the receiver is well
                    sent = self._remember(sent, table, version)
                    count += 1
            if not failed:
                break
            at_fault = self._try_again(failed, taken, is_over)
            if is_over():
                return count
            for each in failed:
                if each in at_fault:
                    why = f"{each.error}, {len(_TRIES_S) + 1} times, and took others meanwhile"
                    self._leave_out(each.table, each.version, why)
                sent = self._remember(sent, each.table, each.version)
                count += 1
        for unreadable in unread:
            raise unreadable
        return count

    def _is_taken(self, table: str, version: int, events: Sequence[Event]) -> bool:
        """Whether the receiver takes a run; one that it refuses is left out."""
        try:
            self._destination.send(events)
        except RefusedEventError as error:
            self._leave_out(table, version, str(error))
            return False
        return True

    def _leave_out(self, table: str, version: int, why: str) -> None:
        self.refused.append(f"{table}, up to version {version}, is left out: {why}")

    def _remember(self, sent: SentLineage, table: str, version: int) -> SentLineage:
        sent = sent.with_version(self._to, table, version)
        remember_sent(self._home, sent)
        return sent

    def _try_again(
        self, failed: Sequence[_Failed], taken: Sequence[Event] | None, is_over: Callable[[], bool]
    ) -> list[_Failed]:
        """Sends runs again at which the receiver failed, each time after one that it takes.

        Args:
            failed: The runs; at least one.
            taken: A run that it took; None: those behind the failed ones are tried.
            is_over: Ends it.

        Returns:
            Those at which it failed each time: they are why. The others it took.

        Raises:
            UserError: It takes no other, so it is not well: all wait.
        """
        for each in failed:
            for number, (_, events) in enumerate(islice(each.behind, _BEHIND), start=1):
                if taken is not None or is_over():
                    break
                if number.bit_count() == 1 and self._did_not_fail(events):  # 1, 2, 4, 8...: few requests
                    taken = events
        if taken is None:
            raise failed[0].error
        left = [*failed]
        for pause_s in _TRIES_S:
            until_s = time.monotonic() + pause_s
            while time.monotonic() < until_s and not is_over():
                time.sleep(min(0.1, pause_s))
            if is_over():
                break
            self._destination.send(taken)  # again, under the same id
            left = [each for each in left if not self._did_not_fail(each.events)]
            if not left:
                break
        return left

    def _did_not_fail(self, events: Sequence[Event]) -> bool:
        try:
            self._destination.send(events)
        except FailedEventError:
            return False
        return True

    def _untold(
        self, table: str, told: int, now_ms: int | None, columns: Columns | None, unread: list[Exception]
    ) -> Iterator[tuple[int, list[Event]]]:
        """The events of each run of a table, with its last version; where it cannot be read on, why is in `unread`."""
        path = self._home.table(table)
        schemas: dict[str, dict[str, str]] = {}
        try:
            for run in untold_runs(path, told, self._place.period_ms, now_ms):
                schemas = schemas or {table: {f.name: str(f.type) for f in dataset_of(path).schema}}
                events = events_of(run, self._place, schemas=schemas, columns=columns, spark=self._spark)
                yield run.commits[-1].version, events
        except (DamagedFileError, DeltaError, OSError) as error:
            unread.append(error)


class LineageThread:
    """Sends lineage beside running jobs, and says once when a receiver goes away and once when it is back.

    Use it in a `with` block. At its end what is left is sent, for some seconds: a home with a year of commits that were
    told to nobody, or a slow receiver, does not hold up the end of its jobs.
    """

    def __init__(
        self,
        sender: LineageSender,
        tables: Sequence[str] | None,
        say: Callable[[str], None],
        *,
        tick_s: float = _TICK_S,
    ) -> None:
        self._sender, self._tables, self._say, self._tick_s = sender, tables, say, tick_s
        self._problem = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwater-lineage", daemon=True)

    def __enter__(self) -> "LineageThread":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        until_s = time.monotonic() + _LAST_S
        self._send(finished=False, is_over=lambda: time.monotonic() > until_s)

    def _run(self) -> None:
        while not self._ended.wait(self._tick_s):
            self._send(finished=True, is_over=self._ended.is_set)

    def _send(self, *, finished: bool, is_over: Callable[[], bool]) -> None:
        try:
            self._sender.send(self._tables, finished=finished, is_over=is_over, waits=False)
        except Exception as error:  # whatever comes of telling, jobs go on
            known = isinstance(error, UserError | DamagedFileError | OSError)
            problem = str(error) if known else f"lineage is not told ({type(error).__name__}: {error})"
            if not self._problem:
                self._say(f"{problem}; what was not told is told later")
            self._problem = problem
        else:
            if self._problem:
                self._say("the receiver of lineage is back, and was told what it missed")
            self._problem = ""
        while self._sender.refused:
            self._say(self._sender.refused.pop(0))


def brokers_of(home: Path, bootstrap: str | None) -> dict[str, str]:
    """The brokers of the cluster that is meant where none is named, and of those of the settings; empty where no
    brokers are known."""
    settings = load_settings(os.environ).settings
    named = {name: section.bootstrap for name, section in settings.cluster.items()}
    return {"": Clusters(home, bootstrap, settings).default.bootstrap, **named}


def lineage_beside_jobs(
    home: Path, bootstrap: str | None, say: Callable[[str], None]
) -> AbstractContextManager[object]:
    """Sends lineage of a home's tables while the block runs, where the settings say where to; else does nothing.

    Args:
        home: The home.
        bootstrap: What --bootstrap names.
        say: Prints a sentence for the person at the keyboard.

    Raises:
        UsageError: The settings name no place to send to.
    """
    settings = load_settings(os.environ).settings.lineage
    if not settings.to:
        return nullcontext()
    return LineageThread(LineageSender(home, settings, brokers_of(home, bootstrap)), None, say)


def _address(to: str) -> str:
    """By what it is remembered where events went: a file by its whole path."""
    return to if "://" in to else str(Path(to).expanduser().absolute())


def _installed(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return ""
