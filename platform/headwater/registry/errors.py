"""Refusals of the registry: the numbers are those of Confluent's REST interface, on which its clients decide."""

SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
SUBJECT_SOFT_DELETED = 40404
SUBJECT_NOT_SOFT_DELETED = 40405
VERSION_SOFT_DELETED = 40406
VERSION_NOT_SOFT_DELETED = 40407
NO_SUBJECT_CONFIG = 40408
NO_SUBJECT_MODE = 40409
INCOMPATIBLE = 409
INVALID_SCHEMA = 42201
INVALID_VERSION = 42202
INVALID_LEVEL = 42203
INVALID_MODE = 42204
NOT_PERMITTED = 42205
REFERENCE_EXISTS = 42206
INVALID_SUBJECT = 42208
TOO_LARGE = 42209
CONTEXT_NOT_EMPTY = 42211
STORE_FAILED = 50001


class RegistryError(Exception):
    """A request that the registry refuses.

    Args:
        code: The number that clients know the reason by; its first three digits are the HTTP status.
        message: One sentence for the person who made the request.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


class SchemaError(Exception):
    """A text is no schema of its format; the message says why."""


def subject_not_found(subject: str) -> RegistryError:
    """There is no such subject."""
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    """The subject has no such version."""
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def not_permitted(message: str) -> RegistryError:
    """A mode, or something else that was set, does not allow it."""
    return RegistryError(NOT_PERMITTED, message)
