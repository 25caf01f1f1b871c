"""Asks a schema registry which subjects an id belongs to, beside the broker's loop, and remembers the answers."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 5.0
_NOT_FOUND = 404
_DOUBT_S = 2.0
"""So long a subject's lack of an id is believed: a producer that has just registered its schema sends it at once."""
_PAUSE_S = 0.5
"""So long a registry that does not answer is not asked again."""
_MOST_IDS = 100_000


class RegistryIds:
    """The ids that subjects have in a registry.

    Args:
        url: The registry.
        ask: Returns the subjects of an id, in place of HTTP.
        now_s: The time, for how long answers hold.
    """

    def __init__(
        self,
        url: str,
        *,
        ask: Callable[[int], list[str]] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._ask = ask or self._over_http
        self._now_s = now_s
        self._lock = threading.Lock()
        self._subjects: dict[int, tuple[frozenset[str], float]] = {}
        self._asked: set[int] = set()
        self._not_before_s = 0.0
        self._is_away = False
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="schema-registry")

    def has(self, subject: str, number: int) -> bool | None:
        """See `log.schema_ids.SchemaIds`."""
        with self._lock:
            known = self._subjects.get(number)
            if known is not None:
                if subject in known[0]:
                    return True
                if self._now_s() - known[1] < _DOUBT_S:
                    return False
            if number not in self._asked and self._now_s() >= self._not_before_s:
                self._asked.add(number)
                self._beside.submit(self._learn, number)
        return None

    def _learn(self, number: int) -> None:
        try:
            subjects = frozenset(self._ask(number))
        except (OSError, HTTPException, ValueError) as error:
            with self._lock:
                self._asked.discard(number)
                self._not_before_s = self._now_s() + _PAUSE_S
                was_away, self._is_away = self._is_away, True
            if not was_away:
                _LOG.warning("the schema registry at %s does not answer: %s", self._url, error)
            return
        with self._lock:
            self._asked.discard(number)
            if len(self._subjects) >= _MOST_IDS:
                self._subjects.clear()
            self._subjects[number] = subjects, self._now_s()
            was_away, self._is_away = self._is_away, False
        if was_away:
            _LOG.warning("the schema registry at %s answers again", self._url)

    def _over_http(self, number: int) -> list[str]:
        try:
            with urlopen(f"{self._url}/schemas/ids/{number}/subjects", timeout=_TIMEOUT_S) as response:  # noqa: S310
                return [str(each) for each in json.loads(response.read())]
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                return []
            raise
