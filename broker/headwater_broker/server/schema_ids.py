"""Asks a registry which subjects have a schema, by its id or GUID, beside the broker's loop, and remembers it."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from headwater_broker.server.errors import UsageError

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 5.0
_SCHEMA_NOT_FOUND = 40403
_DOUBT_S = 2.0
"""So long a subject's lack of an id is believed: a producer that has just registered its schema sends it at once."""
_PAUSE_S = 0.5
"""So long a registry that does not answer is not asked again."""
_MOST_IDS = 100_000
_MOST_ASKED = 1_000
"""So many questions wait for the registry; who sends ids at random waits for the others, and not they for it."""


class RegistryIds:
    """The ids that subjects have in a registry.

    Args:
        url: The registry; a user and a password in it go before `user_info`.
        user_info: `USER:PASSWORD` of HTTP's basic authentication; empty for none.
        ca_location: The PEM file of the authorities to trust; empty for the system's.
        ask: Returns the subjects of an id or a GUID, in place of HTTP.
        now_s: The time, for how long answers hold.

    Raises:
        UsageError: The address is none of HTTP, or the file cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        user_info: str = "",
        ca_location: str = "",
        ask: Callable[[int | str], list[str]] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        login, _, host = parts.netloc.rpartition("@")
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(
                f"confluent.schema.registry.url: {host or url} is no http:// or https:// address"
            )
        self._url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        pair = base64.b64encode((unquote(login) or user_info).encode()).decode()
        self._headers = {"Authorization": f"Basic {pair}"} if pair else {}
        try:
            self._tls = (
                ssl.create_default_context(cafile=ca_location or None) if parts.scheme == "https" else None
            )
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"confluent.ssl.truststore.location: {ca_location}: {why}") from error
        self._ask = ask or self._over_http
        self._now_s = now_s
        self._lock = threading.Lock()
        self._subjects: dict[int | str, frozenset[str]] = {}
        self._lacks: dict[tuple[str, int | str], float] = {}
        self._asked: set[tuple[str, int | str]] = set()
        self._not_before_s = 0.0
        self._is_away = False
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="schema-registry")

    def has(self, subject: str, name: int | str) -> bool | None:
        """See `log.schema_ids.SchemaIds`."""
        pair = subject, name
        with self._lock:
            if subject in self._subjects.get(name, ()):
                return True
            # What the registry said before this subject was asked about may be older than its schema.
            if self._now_s() - self._lacks.get(pair, -_DOUBT_S) < _DOUBT_S:
                return False
            is_free = len(self._asked) < _MOST_ASKED and self._now_s() >= self._not_before_s
            if pair not in self._asked and is_free:
                self._asked.add(pair)
                self._beside.submit(self._learn, *pair)
        return None

    def _learn(self, subject: str, name: int | str) -> None:
        try:
            subjects = frozenset(self._ask(name))
        except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError) as error:
            with self._lock:
                self._asked.discard((subject, name))
                self._not_before_s = self._now_s() + _PAUSE_S
                was_away, self._is_away = self._is_away, True
            if not was_away:
                _LOG.warning("the schema registry at %s does not answer: %s", self._url, error)
            return
        with self._lock:
            self._asked.discard((subject, name))
            for known in (self._subjects, self._lacks):
                if len(known) >= _MOST_IDS:
                    known.clear()
            if subjects:
                self._subjects[name] = subjects
            if subject not in subjects:
                self._lacks[subject, name] = self._now_s()
            was_away, self._is_away = self._is_away, False
        if was_away:
            _LOG.warning("the schema registry at %s answers again", self._url)

    def _over_http(self, name: int | str) -> list[str]:
        if isinstance(name, int):
            return [str(each) for each in self._listed(f"/schemas/ids/{name}/subjects")]
        # The same schema has an id in each context: subjects that are named by topics are in the default one.
        ids = [each["id"] for each in self._listed(f"/schemas/guids/{name}/ids") if each["context"] == "."]
        return [subject for number in ids for subject in self._over_http(int(number))]

    def _listed(self, path: str) -> list[Any]:
        request = Request(f"{self._url}{path}", headers=self._headers)  # noqa: S310
        try:
            with urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as response:  # noqa: S310
                answer = json.loads(response.read())
        except HTTPError as error:
            # Whatever else answers there has pages that it does not find, too.
            refusal = json.loads(error.read())
            if isinstance(refusal, dict) and refusal.get("error_code") == _SCHEMA_NOT_FOUND:
                return []
            raise
        if not isinstance(answer, list):
            raise ValueError("what it answers is no list")
        return answer
