"""A schema in a file, as commands take it."""

import sys
from pathlib import Path

from headwater.errors import UsageError, reason

_KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
_ENDINGS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def read_schema(file: Path, type_: str | None = None) -> dict[str, str]:
    """The schema in a file, as a registry takes it.

    Args:
        file: The file; `-` is standard input.
        type_: Its format; by default by the file's ending.

    Raises:
        UsageError: It cannot be read, or its format is not known.
    """
    if type_ is not None:
        kind = _KINDS.get(type_.lower())
        if kind is None:
            raise UsageError(f"--type {type_} is no format: give {', '.join(_KINDS)}")
    else:
        kind = _ENDINGS.get(file.suffix)
        if kind is None:
            raise UsageError(
                f"{file} does not say its format by its ending ({', '.join(_ENDINGS)}): rename it, or give --type "
                + ", ".join(_KINDS)
            )
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: it is no text in UTF-8") from error
    return {"schema": text, "schemaType": kind}
