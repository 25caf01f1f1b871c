"""Values that are one Avro record in binary each, with or without the header of Confluent's wire format.

Avro's binary form has no marks: a reader stops when it has all fields, and notices neither a missing end nor bytes that
follow the record. So a field of eight known bytes is added after the schema's own, and these bytes after each value:
they are read back unchanged if, and only if, the record ends where the value does.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import JobDefinitionError, UnavailableError
from headwater_streams.sources.avro_logical import by_writers_units, without_times
from headwater_streams.sources.avro_schema import avro_detour, tells_ints_from_longs, wider
from headwater_streams.sources.beside import read_beside
from headwater_streams.sources.confluent import HEADER_BYTES, NO_HEADER
from headwater_streams.sources.nested import somewhere
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.read_types import Typing
from headwater_streams.sources.schema_header import guid_of
from headwater_streams.sources.wrong_fields import wrong_fields
from headwater_streams.spark.avro_schemas import avro_incompatibilities
from headwater_streams.spark.spark_errors import reason_of

END = "_end"
_log = logging.getLogger(__name__)
_MARK = b"\x01\x02HW\xfe\xff\x00\x7f"  # no end of it equals its beginning: leftover bytes cannot look like it
_ID, _GUID = "_writer", "_writer_guid"
_MISSING_S = 60.0
"""So long an id that a registry does not have is not asked for again."""
_MOST_ASKED = 1_000
"""So many new ids of a batch are asked for, those of most values first: bytes that are no header look like ids, too."""


@dataclass(frozen=True)
class Avro:
    """Values of Avro's binary form.

    Attributes:
        schema: The columns that are read, as Avro's JSON.
        writers: The schemas that values were written with, by the id in the header of Confluent's wire format; None
            for values without a header.
        lookup: Finds the schema of an id, where they are not all known before, as by a registry. Raises `LookupError`
            for an id that it does not know.
        guids: Finds the schema of a GUID, which a header of the record may have in place of an id; as `lookup`.
    """

    name: ClassVar[str] = "avro"

    schema: str
    writers: tuple[tuple[int, str], ...] | None = None
    lookup: Callable[[int], str] | None = field(default=None, repr=False, compare=False)
    guids: Callable[[str], str] | None = field(default=None, repr=False, compare=False)

    @property
    def has_header(self) -> bool:
        """Whether values begin with the header of Confluent's wire format."""
        return self.writers is not None or self.lookup is not None

    def columns(self) -> T.StructType:
        """The columns of the format.

        Raises:
            JobDefinitionError: Avro or Spark rejects the schema, or a writer's values cannot be read as it.
        """
        spark = SparkSession.active()
        try:
            empty = spark.range(0).select(_from_avro(F.lit(b""), self.schema, self.schema).alias("value"))
        except Exception as error:
            raise JobDefinitionError(f"hw.avro: {_cause(error)}") from error
        kind = empty.schema["value"].dataType
        assert isinstance(kind, T.StructType)
        for number, writer in self.writers or ():
            self.check_writer(spark, number, writer)
        return T.StructType([f for f in kind.fields if f.name != END])

    def check_writer(self, spark: SparkSession, number: int | str, writer: str) -> None:
        """Checks that values of a writer's schema can be read.

        Raises:
            JobDefinitionError: It cannot.
        """
        try:
            reasons = avro_incompatibilities(spark, self.schema, writer)
        except Exception as error:
            raise JobDefinitionError(f"hw.avro: writer {number}: {_cause(error)}") from error
        try:
            for schema in by_writers_units(self.schema, writer):
                wider(schema, ints=True)
        except ValueError as error:
            reasons = [*reasons, str(error)]
        except RecursionError:
            reasons = [*reasons, "it is nested too deeply"]
        if reasons:
            raise JobDefinitionError(
                f"hw.avro: what writer {number} wrote cannot be read as the schema: {'; '.join(reasons)}"
            )


def avro(
    schema: str | Path, *, writers: Mapping[int, str | Path] | Callable[[int], str] | None = None
) -> Avro:
    """Declares Avro as a topic's format.

    Args:
        schema: The columns that are read: a record's schema as JSON, or an `.avsc` file of it, by a path from the
            module that names it, or from the current folder.
        writers: For values with the header of Confluent's wire format: the schemas that they were written with, by
            id, or a function from an id to its schema, which may ask a schema registry. The function is called once
            for each new id. It raises `LookupError` for an id that it does not know, and an `OSError`, as clients of
            HTTP do, where the registry does not answer: the job then waits and asks again. With a function each batch
            is read once more, for its ids. Values of an id that it does not know, or whose schema cannot be read as
            the job's, go to quarantine; an id that it did not know it is asked for again after a minute.

    Raises:
        JobDefinitionError: A schema is not a record's, or its file does not exist.
    """
    if writers is None:
        return Avro(_schema_text(schema))
    if callable(writers):
        return Avro(_schema_text(schema), None, writers)
    return Avro(_schema_text(schema), tuple((n, _schema_text(text)) for n, text in sorted(writers.items())))


class AvroReader:
    """Parses values batch by batch, and remembers the schemas that a registry gave, by their ids and their GUIDs."""

    def __init__(self, form: Avro, raw: Column, headers: Column) -> None:
        self._form, self._raw = form, raw
        self._guid = F.lit(None).cast("string") if form.guids is None else guid_of(headers)
        self._fields = form.columns().fields
        self._writers: dict[int | str, str | None] = dict(form.writers or ())
        self._missing: dict[int | str, float] = {}
        self._has_guids = False
        self._value = self._parsed()

    def value(self, records: DataFrame) -> Column:
        """The record of each value, with `_end`; NULL where its schema is unknown or cannot be read as the job's."""
        if self._form.lookup is not None:
            names = self._names(records)
            has_guids = self._has_guids or any(isinstance(name, str) for name in names)
            found = self._found([name for name in names if name not in self._writers])
            if found or has_guids != self._has_guids:
                self._has_guids = has_guids
                self._writers.update(found)
                self._value = self._parsed()
            if len(self._missing) > _MOST_ASKED:
                self._missing.clear()
        return self._value

    def typing(self, value: str, unread: str) -> Typing:
        """The `Typing` that casts the record of each value, in the column `value`, to its own types."""
        return Typing(self._fields, avro_detour, value, unread, [END])

    def problem(self, unread: Column, typing: Typing) -> Problem:
        """What is wrong with a value: it is null, empty, cut off or too long, its schema is unknown, a number does not
        fit its type, or a text is not UTF-8, which Avro's reader does not check."""
        raw, value, end = self._raw, typing.read, typing.read.getField(END)
        texts = {
            field.name: is_no_text
            for field in self._fields
            if (is_no_text := somewhere(field.dataType, value.getField(field.name), _is_no_text)) is not None
        }
        whole = F.coalesce(end == F.lit(_MARK), F.lit(False))
        condition = reduce(Column.__or__, texts.values(), ~whole | unread)
        reason = F.when(raw.isNull(), F.lit("the value is null"))
        reason = reason.when(F.octet_length(raw) == 0, F.lit("the value is empty"))
        if self._form.has_header:
            reason = reason.when(self._guid.isNull() & ~_has_header(raw), F.lit(NO_HEADER))
            sentence = (
                " is not known"
                if self._form.lookup is None
                else " is not known, or not to be read as the job's"
            )
            named = F.coalesce(self._guid, _id(raw).cast("string"))
            unknown = F.concat(F.lit("the schema "), named, F.lit(sentence))
            reason = reason.when(value.isNull(), unknown)
        reason = reason.when(end.isNull(), F.lit("the value is cut off, or not of the schema"))
        if typing.wrong:
            reason = reason.when(whole & unread, wrong_fields(typing.wrong))
        for name, is_no_text in texts.items():
            reason = reason.when(whole & is_no_text, F.lit(f"{name} is not UTF-8"))
        return Problem("value", condition, reason.otherwise(F.lit("bytes are left over behind the record")))

    def _names(self, records: DataFrame) -> list[int | str]:
        """The ids and GUIDs in records."""
        named = records.filter(self._guid.isNotNull() | _has_header(self._raw))
        names = [F.when(self._guid.isNull(), _id(self._raw)).alias(_ID), self._guid.alias(_GUID)]
        counted = named.groupBy(*names).count().orderBy(F.desc("count"), _ID, _GUID)
        rows = counted.limit(_MOST_ASKED + len(self._writers)).collect()
        return sorted((row[_ID] if row[_GUID] is None else row[_GUID] for row in rows), key=str)

    def _found(self, names: list[int | str]) -> dict[int | str, str | None]:
        """The schemas of new names; None for one that cannot be read as the job's. What the registry does not have may
        be there a little later, as of a schema that another registry copies."""
        found: dict[int | str, str | None] = {}
        for name in names:
            if time.monotonic() - self._missing.get(name, -_MISSING_S) < _MISSING_S:
                continue
            try:
                found[name] = self._looked_up(name)
            except LookupError:
                self._missing[name] = time.monotonic()
        return found

    def _looked_up(self, name: int | str) -> str | None:
        ask: Callable[[Any], str] | None = self._form.lookup if isinstance(name, int) else self._form.guids
        assert ask is not None
        # Any producer can register a schema; that must not stop the job.
        try:
            text = _record_schema(ask(name))
            self._form.check_writer(SparkSession.active(), name, text)
        except OSError as error:
            raise UnavailableError(
                f"hw.avro: the function that finds writers' schemas could not say the one of id {name}: {error}"
            ) from error
        except JobDefinitionError as error:
            _log.warning(f"values with the schema {name} go to quarantine: {error}")
            return None
        return text

    def _parsed(self) -> Column:
        form, raw = self._form, self._raw
        writers = [writer for writer in self._writers.values() if writer is not None]
        ints = not any(tells_ints_from_longs(schema) for schema in (form.schema, *writers))
        reader = wider(form.schema, ints=ints)
        if not form.has_header:
            return _from_avro(raw, reader, reader)
        empty = SparkSession.active().range(0).select(_from_avro(F.lit(b""), reader, reader).alias("value"))
        nothing = empty.schema["value"].dataType
        value = F.when(F.lit(False), F.lit(None).cast(nothing))
        # Side by side: of hundreds of writers, one within the other, Spark's planner would find no end.
        for name, writer in self._writers.items():
            if writer is not None:
                value = value.when(self._is_of(name), self._read_by(name, writer, ints).try_cast(nothing))
        return value

    def _is_of(self, name: int | str) -> Column:
        """Whether a value is of a schema."""
        if isinstance(name, str):
            return self._guid == name
        here = _has_header(self._raw) & (_id(self._raw) == name)
        # To look into the headers of every record costs; where none had a GUID yet, nobody has to.
        return here & self._guid.isNull() if self._has_guids else here

    def _read_by(self, name: int | str, writer: str, ints: bool) -> Column:
        """The record of a value of a schema, read as the job's."""
        as_read, written = by_writers_units(self._form.schema, writer)
        behind = F.substring(self._raw, F.lit(HEADER_BYTES + 1), F.octet_length(self._raw))
        own = behind if isinstance(name, int) else self._raw
        return _from_avro(own, wider(written, ints=ints), wider(as_read, ints=ints))


def _is_no_text(kind: T.DataType, value: Column) -> Column | None:
    return ~F.is_valid_utf8(value) if isinstance(kind, T.StringType) else None


def _has_header(raw: Column) -> Column:
    return F.coalesce(F.hex(F.substring(raw, 1, 1)) == "00", F.lit(False)) & (
        F.octet_length(raw) >= HEADER_BYTES
    )


def _id(raw: Column) -> Column:
    return F.conv(F.hex(F.substring(raw, 2, 4)), 16, 10).cast("long")


def _from_avro(record: Column, writer: str, reader: str) -> Column:
    from pyspark.sql.avro.functions import from_avro

    options = {"mode": "PERMISSIVE"}
    if writer != reader:
        options["avroSchema"] = _with_end(reader)
    return from_avro(F.concat(record, F.lit(_MARK)), _with_end(writer), options)


def _with_end(schema: str) -> str:
    value = without_times(json.loads(schema))
    end = {
        "name": END,
        "type": {"type": "fixed", "name": "HeadwaterEnd", "namespace": "headwater", "size": len(_MARK)},
    }
    return json.dumps({**value, "fields": [*value["fields"], end]})


def _schema_text(schema: str | Path) -> str:
    text = str(schema)
    if not text.lstrip().startswith("{"):
        try:
            text = read_beside(schema).decode()
        except OSError as error:
            raise JobDefinitionError(
                f"hw.avro: {error}; give a record's schema as JSON, or its .avsc file"
            ) from error
        except UnicodeDecodeError as error:
            raise JobDefinitionError(f"hw.avro: {schema} is not UTF-8: {error}") from error
    return _record_schema(text)


def _record_schema(text: str) -> str:
    """A record's schema in one line.

    Raises:
        JobDefinitionError: It is something else.
    """
    try:
        value: Any = json.loads(text)
        line = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise JobDefinitionError(f"hw.avro: the schema is not JSON: {error}") from error
    except RecursionError as error:
        raise JobDefinitionError("hw.avro: the schema is nested too deeply") from error
    if not isinstance(value, dict) or value.get("type") != "record" or not value.get("fields"):
        raise JobDefinitionError("hw.avro: the schema is not a record's with fields, so it has no columns")
    return line


def _cause(error: BaseException) -> str:
    """The innermost reason of the JVM's, in one line."""
    return reason_of(error) or str(error).strip().splitlines()[0].split(" SQLSTATE")[0]
