"""Statements for Flink, by the REST interface of its SQL gateway."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from nexmark.flink_fetch import DidNotEndError, NoFlinkError

_POLL_S = 0.05


def ask(url: str, *, method: str = "GET", body: Any = None) -> Any:
    """What a REST interface of Flink answers.

    Raises:
        OSError: Nobody answers, or with an error.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, method=method, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Session:
    """A session of the gateway: its statements see each other's tables."""

    def __init__(self, address: str) -> None:
        """Opens one; the gateway forgets it when it has been idle for a while."""
        self._sessions = f"http://{address}/v1/sessions"
        self._url = f"{self._sessions}/{ask(self._sessions, method='POST', body={})['sessionHandle']}"

    def run(self, statement: str, timeout_s: float) -> None:
        """Runs a statement to its end.

        Raises:
            DidNotEndError: It does not end.
            NoFlinkError: Flink refuses it.
        """
        found = ask(f"{self._url}/statements", method="POST", body={"statement": statement})
        operation = f"{self._url}/operations/{found['operationHandle']}"
        deadline_s = time.monotonic() + timeout_s
        while (status := ask(f"{operation}/status")["status"]) != "FINISHED":
            if status == "ERROR":
                raise NoFlinkError(f"{statement}: {self._why(operation)}")
            if time.monotonic() > deadline_s:
                raise DidNotEndError(f"{statement}: {status} after {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Closes it."""
        ask(self._url, method="DELETE")

    def _why(self, operation: str) -> str:
        try:
            ask(f"{operation}/result/0")
        except urllib.error.HTTPError as error:
            told = error.read().decode(errors="replace").replace("\\n", "\n")
            return (
                "; ".join(line.strip() for line in told.splitlines() if "Caused by" in line)[:2000]
                or told[:2000]
            )
        return "it does not say why"
