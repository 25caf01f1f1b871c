"""What a schema registry has answered, kept in a home: a job that starts while the registry is away goes on with that.

A schema never changes under its id, so what is kept of ids is true for as long as the registry lives. What is kept of a
subject's newest version is the newest that was known.
"""

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater_streams.base.record import Record
from headwater_streams.sources.registry_client import NoRegistryError
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import exists
from headwater_streams.storage.records import read_record, write_record

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class KeptAnswer(Record):
    """One answer of a registry, in `<home>/registry/<digest of the question>.json`.

    Attributes:
        registry: The registry's address, without a login.
        question: The path and the parameters that it was asked for.
        at: When it answered, in UTC.
        answer: What it answered.
    """

    WHAT = "an answer of a schema registry"

    registry: str
    question: str
    at: str
    answer: Any

    def to_json(self) -> dict[str, Any]:
        """The answer as it is stored."""
        return self.version_key() | {
            "registry": self.registry,
            "question": self.question,
            "at": self.at,
            "answer": self.answer,
        }

    @classmethod
    def from_json(cls, value: Any) -> "KeptAnswer":
        """The answer as it was stored."""
        stored = dict(cls.checked(value))
        stored.pop(cls.FORMAT_KEY, None)
        return cls(**stored)


class RememberedRegistry:
    """A registry that is asked, and in its absence the answers that it gave before.

    Args:
        ask: Asks the registry, as `RegistryClient.ask` does.
        url: Its address, without a login.
        folder: Where answers are kept.
    """

    def __init__(self, ask: Callable[..., Any], url: str, folder: Path) -> None:
        self._ask, self._url, self._folder = ask, url, folder

    def ask(self, method: str, *path: str, **query: Any) -> Any:
        """The answer to one request; of those that only read, it is kept.

        Raises:
            RefusedByRegistryError: The registry refuses.
            NoRegistryError: It does not answer, and has not answered this before.
        """
        if method != "GET":
            return self._ask(method, *path, **query)
        question = "/".join(path) + "".join(f" {name}={value}" for name, value in sorted(query.items()))
        digest = hashlib.sha256(f"{self._url} {question}".encode()).hexdigest()
        file = self._folder / f"{digest[:32]}.json"
        try:
            answer = self._ask(method, *path, **query)
        except NoRegistryError as error:
            before = _kept(file)
            if before is None:
                raise
            _log.warning(f"{error}: the answer of {before.at} to {question} is used")
            return before.answer
        before = _kept(file)
        if before is None or before.answer != answer:
            at = datetime.now(UTC).isoformat(timespec="seconds")
            write_record(file, KeptAnswer(registry=self._url, question=question, at=at, answer=answer))
        return answer


def _kept(file: Path) -> KeptAnswer | None:
    if exists(file):
        with suppress(DamagedFileError):
            return read_record(file, KeptAnswer)
    return None
