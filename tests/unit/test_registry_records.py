"""The records of the registry's topic, byte by byte as Confluent's registry writes them."""

import pytest

from headwater.registry.records import (
    ConfigKey,
    ConfigValue,
    ContextKey,
    ContextValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    Key,
    ModeKey,
    ModeValue,
    Record,
    Reference,
    SchemaKey,
    SchemaText,
    SchemaValue,
    UnreadableRecordError,
    Value,
    decode,
    encode_key,
    encode_value,
)

_VERSION = SchemaKey(subject="clicks-value", version=1)


@pytest.mark.parametrize(
    ("key", "value", "key_bytes", "value_bytes"),
    [
        (
            _VERSION,
            SchemaValue(subject="clicks-value", version=1, id=7, schema=SchemaText(text='"string"')),
            b'{"keytype":"SCHEMA","subject":"clicks-value","version":1,"magic":1}',
            b'{"subject":"clicks-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}',
        ),
        (
            _VERSION,
            SchemaValue(
                subject="clicks-value",
                version=1,
                id=7,
                schema=SchemaText(
                    text="{}", kind="JSON", references=(Reference(name="a.json", subject="a", version=2),)
                ),
                deleted=True,
            ),
            b'{"keytype":"SCHEMA","subject":"clicks-value","version":1,"magic":1}',
            (
                b'{"subject":"clicks-value","version":1,"id":7,"schema":"{}","schemaType":"JSON",'
                b'"references":[{"name":"a.json","subject":"a","version":2}],"deleted":true}'
            ),
        ),
        (
            ConfigKey(subject=None),
            ConfigValue(fields={"compatibilityLevel": "FULL"}),
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"FULL"}',
        ),
        (
            ModeKey(subject="s"),
            ModeValue(mode="READONLY"),
            b'{"keytype":"MODE","subject":"s","magic":0}',
            b'{"subject":"s","mode":"READONLY"}',
        ),
        (
            DeleteSubjectKey(subject="s"),
            DeleteSubjectValue(version=3),
            b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            b'{"subject":"s","version":3}',
        ),
        (
            ContextKey(context=".web"),
            ContextValue(),
            b'{"keytype":"CONTEXT","tenant":"default","context":".web","magic":0}',
            b'{"tenant":"default","context":".web"}',
        ),
    ],
    ids=["schema", "schema with all", "config of all", "mode", "deletion", "context"],
)
def test_records_are_written_and_read_byte_by_byte(
    key: Key, value: Value, key_bytes: bytes, value_bytes: bytes
) -> None:
    assert encode_key(key) == key_bytes
    assert encode_value(key, value) == value_bytes
    assert decode(key_bytes, value_bytes) == Record(key=key, value=value)
    assert decode(key_bytes, None) == Record(key=key, value=None)


def test_what_newer_registries_write_is_kept() -> None:
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    value = (
        b'{"subject":"s","version":1,"id":1,"md5":"AA==","schema":"\\"int\\"","metadata":{"properties":{"o":"p"}},'
        b'"deleted":false,"schemaTags":[1]}'
    )
    record = decode(key, value)
    assert record is not None
    assert isinstance(record.value, SchemaValue)
    written = encode_value(record.key, record.value)
    assert written == value.replace(b'"md5":"AA==",', b"")


@pytest.mark.parametrize(
    "key",
    [
        b'{"keytype":"NOOP","magic":0}',
        b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}',
        b'{"keytype":"OF_NEXT_YEAR","subject":"s"}',
    ],
)
def test_what_changes_no_schema_is_passed_over(key: bytes) -> None:
    assert decode(key, b'{"any":1}') is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"clicks", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"SCHEMA","version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"subject":"s"}'),
        (b'{"keytype":"MODE","subject":"s"}', b"\xff"),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1}',
            b'{"subject":"s","id":1,"schema":"1","metadata":{"properties":[1]}}',
        ),
    ],
)
def test_what_is_no_record_of_a_registry_is_told(key: bytes | None, value: bytes) -> None:
    with pytest.raises(UnreadableRecordError):
        decode(key, value)
