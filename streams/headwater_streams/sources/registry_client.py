"""A schema registry over HTTP: the REST interface of Confluent's, which Headwater's own has, too."""

import base64
import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

TIMEOUT_S = 15.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_SERVER_FAULT = 500


class RefusedByRegistryError(LookupError):
    """The registry answers that it has no such thing, or does not do it; the message is its sentence."""


class NoRegistryError(OSError):
    """No registry answers."""


class RegistryClient:
    """A registry at a URL.

    Args:
        url: Its address; a user and a password in it are sent as HTTP's basic authentication has it.
        timeout_s: How long it may take for one request.

    Raises:
        ValueError: It is no URL of HTTP.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no registry's address: give one as http://127.0.0.1:8081")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        address = host if parts.port is None else f"{host}:{parts.port}"
        self.url = f"{parts.scheme}://{address}{parts.path.rstrip('/')}"
        self._timeout_s = timeout_s
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, **query: str | bool | None
    ) -> Any:
        """The answer to one request, from JSON.

        Args:
            method: HTTP's.
            path: The parts of the path; each is quoted.
            body: What is sent, as JSON.
            query: The parameters; None and False are left out.

        Raises:
            RefusedByRegistryError: The registry refuses.
            NoRegistryError: It does not answer, or fails.
        """
        given = {
            name: "true" if each is True else str(each)
            for name, each in query.items()
            if each is not None and each is not False
        }
        target = "/".join([self.url, *(quote(each, safe="") for each in path)])
        data = None if body is None else json.dumps(body).encode()
        request = Request(  # noqa: S310 - the scheme was checked
            f"{target}?{urlencode(given)}" if given else target, data, self._headers, method=method
        )
        try:
            with urlopen(request, timeout=self._timeout_s) as response:  # noqa: S310
                return json.loads(response.read() or b"null")
        except HTTPError as error:
            message = _message_of(error)
            if message is None:
                raise NoRegistryError(
                    f"what answers at {self.url} is no schema registry: HTTP status {error.code}"
                ) from error
            if error.code >= _SERVER_FAULT:
                raise NoRegistryError(f"the registry at {self.url} fails: {message}") from error
            raise RefusedByRegistryError(message) from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise NoRegistryError(f"no registry answers at {self.url} ({why})") from error
        except ValueError as error:
            raise NoRegistryError(f"what answers at {self.url} is no schema registry: {error}") from error


def _message_of(error: HTTPError) -> str | None:
    """The registry's own sentence; None if it is none of a registry."""
    try:
        return str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return None
