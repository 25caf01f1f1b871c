"""What the command line asks a registry, this one or Confluent's: refusals as a person's errors."""

from collections.abc import Mapping
from typing import Any

from headwater.config.settings import RegistrySettings
from headwater.errors import EXIT_DEPENDENCY, UsageError, UserError
from headwater.registry import errors as codes
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError, RegistryLogin
from headwater_streams.sources.registry_client import RegistryClient as Client

_WRONG_NAMES = (
    *(codes.SUBJECT_NOT_FOUND, codes.VERSION_NOT_FOUND, codes.SCHEMA_NOT_FOUND, codes.INVALID_VERSION),
    *(codes.INVALID_LEVEL, codes.INVALID_MODE, codes.INVALID_SUBJECT),
)


def login_of(settings: RegistrySettings) -> RegistryLogin:
    """What the settings say to be let in by the registry that they name."""
    return RegistryLogin(
        username=settings.username,
        password=settings.password.get_secret_value(),
        ssl_ca_location=settings.ssl_ca_location,
        ssl_certificate_location=settings.ssl_certificate_location,
        ssl_key_location=settings.ssl_key_location,
        ssl_key_password=settings.ssl_key_password.get_secret_value(),
    )


class RegistryClient:
    """A registry at a URL.

    Args:
        url: Its address.
        timeout_s: How long it may take for one request.
        login: What it takes to be let in.

    Raises:
        UsageError: It is no URL of HTTP, or a file of the login cannot be used.
    """

    def __init__(self, url: str, timeout_s: float, login: RegistryLogin | None = None) -> None:
        try:
            self._client = Client(url, timeout_s, login)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def ask(
        self, method: str, *path: str, body: Mapping[str, Any] | None = None, **query: str | bool | None
    ) -> Any:
        """The answer to one request; see `headwater_streams.sources.registry_client`.

        Raises:
            UsageError: It has nothing of the name that was given.
            UserError: It refuses for another reason, with its sentence, or does not answer.
        """
        try:
            return self._client.ask(method, *path, body=body, **query)
        except RefusedByRegistryError as error:
            kind = UsageError if error.code in _WRONG_NAMES else UserError
            raise kind(str(error)) from error
        except NoRegistryError as error:
            raise UserError(
                f"{error}: start one with headwater up --registry, or name another with --url",
                EXIT_DEPENDENCY,
            ) from error
