"""What the command line asks a registry, this one or Confluent's: refusals as a person's errors."""

from collections.abc import Mapping
from typing import Any

from headwater.errors import EXIT_DEPENDENCY, UsageError, UserError
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError
from headwater_streams.sources.registry_client import RegistryClient as Client


class RegistryClient:
    """A registry at a URL.

    Args:
        url: Its address; a user and a password in it are sent as HTTP's basic authentication has it.
        timeout_s: How long it may take for one request.

    Raises:
        UsageError: It is no URL of HTTP.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            self._client = Client(url, timeout_s)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, **query: str | bool | None
    ) -> Any:
        """The answer to one request; see `headwater_streams.sources.registry_client`.

        Raises:
            UserError: The registry refuses, with its sentence, or does not answer.
        """
        try:
            return self._client.ask(method, *path, body=body, **query)
        except RefusedByRegistryError as error:
            raise UserError(str(error)) from error
        except NoRegistryError as error:
            raise UserError(
                f"{error}: start one with headwater up --registry, or name another with --url",
                EXIT_DEPENDENCY,
            ) from error
