"""What is kept on disk as JSON: each a frozen dataclass with a version, written and read in one place.

A record knows all its keys. A key that it does not know was written by a newer Headwater, and might change what the
others mean: the record is refused, as one of a newer version is. `storage.records`, which reads the file, names it in
the error. Older versions are read: a key that they lack has a default, or `from_json` works it out.

    FORMAT      the newest version, which is written; absent in what is stored means 1, and 1 is not written, so that
                what was written before there were versions is of version 1, and can still be read by who wrote it
    FORMAT_KEY  the key of the version
    STORED_AS   the keys of fields that are not called as in the dataclass, `{field: key}`
    MORE_KEYS   keys that are no fields: computed values that are stored for other readers, or keys of older versions

A part is the same without a version of its own: it has that of the record that it stands in.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ClassVar

from headwater_streams.base.errors import StreamsError


class NewerRecordError(StreamsError):
    """A stored value is of a newer Headwater; the message is a predicate of where it stands."""


class Part:
    """A part of a record; its subclasses are keyword-only frozen dataclasses."""

    __slots__ = ()

    WHAT: ClassVar[str]
    """What it is, with its article: `"a plan"`."""
    STORED_AS: ClassVar[Mapping[str, str]] = {}
    MORE_KEYS: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def checked(cls, value: Any) -> Mapping[str, Any]:
        """A stored value of which every key is known.

        Raises:
            NewerRecordError: One is not.
            ValueError: It is no object, or lacks keys that it must have, too: then it is damaged rather than new.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"{cls.WHAT} is no object")
        known, required = keys_of(cls)  # type: ignore[arg-type]  # a class can be hashed
        if value.keys() <= known:
            return value
        if missing := sorted(required - value.keys()):
            raise ValueError(f"{cls.WHAT} without {missing[0]!r}")
        unknown = next(key for key in value if key not in known)
        raise NewerRecordError(f"has the key {unknown!r}, which this Headwater does not know in {cls.WHAT}")


class Record(Part):
    """What is stored by itself, with a version."""

    __slots__ = ()

    FORMAT: ClassVar[int] = 1
    FORMAT_KEY: ClassVar[str] = "format"

    @classmethod
    def checked(cls, value: Any) -> Mapping[str, Any]:
        """A stored value of a version that is known, and of which every key is.

        Raises:
            NewerRecordError: The version or a key is not known.
            ValueError: It is not what is stored.
        """
        cls.require_version(value)
        return super().checked(value)

    @classmethod
    def require_version(cls, value: Any) -> None:
        """Checks that a stored value is of a version that is known.

        Raises:
            NewerRecordError: It is not.
            ValueError: Its version is not a number from 1 on.
        """
        version = version_of(cls, value)
        if version > cls.FORMAT:
            readable = "version 1" if cls.FORMAT == 1 else f"versions 1 to {cls.FORMAT}"
            raise NewerRecordError(
                f"is {cls.WHAT} of version {version}, of which this Headwater reads {readable}"
            )

    @classmethod
    def version_key(cls) -> dict[str, int]:
        """The version as it is stored: nothing for the first."""
        return {} if cls.FORMAT == 1 else {cls.FORMAT_KEY: cls.FORMAT}


def version_of(record: type[Record], value: Any) -> int:
    """The version of a stored value."""
    version = value.get(record.FORMAT_KEY, 1) if isinstance(value, Mapping) else 1
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{version!r} is no version of {record.WHAT}")
    return version


@cache
def keys_of(part: type[Part]) -> tuple[frozenset[str], frozenset[str]]:
    """The keys that a part may have, and those of them that it must have."""
    named = {part.STORED_AS.get(f.name, f.name): f for f in fields(part)}  # type: ignore[arg-type]
    required = (key for key, f in named.items() if f.default is MISSING and f.default_factory is MISSING)
    also = {part.FORMAT_KEY} if issubclass(part, Record) else set()
    return frozenset({*named, *part.MORE_KEYS, *also}), frozenset(required)
