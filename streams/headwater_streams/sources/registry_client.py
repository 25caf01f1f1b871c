"""A schema registry over HTTP: the REST interface of Confluent's, which Headwater's own has, too."""

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

TIMEOUT_S = 15.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_SERVER_FAULT = 500
_NO_ENTRY, _PASSES = (401, 403), (407, 408, 425, 429)


class RefusedByRegistryError(LookupError):
    """The registry answers that it has no such thing, or does not do it; the message is its sentence.

    Args:
        message: The sentence.
        code: The number of the reason, as 40401 of a subject that there is not; None if it gives none.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class NoRegistryError(OSError):
    """No registry answers, or it does not let this client in: nothing is known of what was asked for."""


@dataclass(frozen=True, kw_only=True)
class RegistryLogin:
    """What it takes to be let in by a registry, in the words of the setting `[registry]`.

    Attributes:
        username: Of HTTP's basic authentication; empty for none.
        password: The user's.
        ssl_ca_location: The PEM file of the authorities to trust; empty for those of SSL_CERT_FILE, else the system's.
        ssl_certificate_location: The PEM file of the client's certificate, where the registry asks for one.
        ssl_key_location: The PEM file of its key; empty where that stands in the same file.
        ssl_key_password: What the key is encrypted with.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        """For connections by TLS.

        Raises:
            ValueError: A file is none of that kind.
        """
        setting, file = "ssl_ca_location", self.ssl_ca_location
        try:
            context = ssl.create_default_context(cafile=file or None)
            if self.ssl_certificate_location:
                setting, file = "ssl_certificate_location", self.ssl_certificate_location
                context.load_cert_chain(file, self.ssl_key_location or None, self.ssl_key_password)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            why = getattr(error, "strerror", None) or error
            raise ValueError(f"registry.{setting}: {file} cannot be used for TLS: {why}") from error
        return context


class RegistryClient:
    """A registry at a URL.

    Args:
        url: Its address; a user and a password in it go before those of `login`.
        timeout_s: How long it may take for one request.
        login: What it takes to be let in.

    Raises:
        ValueError: It is no URL of HTTP, or a file of `login` cannot be used.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S, login: RegistryLogin | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no registry's address: give one as http://127.0.0.1:8081")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        address = host if parts.port is None else f"{host}:{parts.port}"
        self.url = f"{parts.scheme}://{address}{parts.path.rstrip('/')}"
        self._timeout_s = timeout_s
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        login = login or RegistryLogin()
        self._context = login.context() if parts.scheme == "https" else None
        user, password = login.username, login.password
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        if user:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"

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
            NoRegistryError: It does not answer, does not let this client in, or fails.
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
            with urlopen(request, timeout=self._timeout_s, context=self._context) as response:  # noqa: S310
                return json.loads(response.read() or b"null")
        except HTTPError as error:
            code, message = _reason_of(error)
            if error.code in _NO_ENTRY:
                raise NoRegistryError(
                    f"the registry at {self.url} does not let this client in ({message or error.reason}): see "
                    "registry.username and registry.password in the settings"
                ) from error
            if error.code in _PASSES:
                raise NoRegistryError(
                    f"the registry at {self.url} does not answer now: {message or error.reason}"
                ) from error
            if message is None:
                raise NoRegistryError(
                    f"what answers at {self.url} is no schema registry: HTTP status {error.code}"
                ) from error
            if error.code >= _SERVER_FAULT:
                raise NoRegistryError(f"the registry at {self.url} fails: {message}") from error
            raise RefusedByRegistryError(message, code) from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise NoRegistryError(f"no registry answers at {self.url} ({why})") from error
        except ValueError as error:
            raise NoRegistryError(f"what answers at {self.url} is no schema registry: {error}") from error


def _reason_of(error: HTTPError) -> tuple[int | None, str | None]:
    """The registry's own number and sentence; no sentence if it is none of a registry."""
    try:
        answer = json.loads(error.read())
        code = answer.get("error_code")
        return (code if isinstance(code, int) else None), str(answer["message"])
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None, None
