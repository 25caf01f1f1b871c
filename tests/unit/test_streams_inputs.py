"""What a topic's declaration allows, and what of it a job's fingerprint sees."""

import pytest

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.avro_value import avro
from headwater_streams.sources.csv_value import csv
from headwater_streams.sources.inputs import topic
from headwater_streams.sources.parsers import access_log, key_value, syslog, template

_AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "schema= names the columns"),
        ({"schema": "a INT", "format": "xml"}, "format 'xml' is not one of 'json', 'csv'"),
        ({"schema": "a INT", "format": "access"}, "has columns of its own"),
        ({"format": "csv"}, "schema= names the columns of its CSV"),
        ({"schema": "a INT", "format": avro(_AVRO)}, "has columns of its own"),
        ({"schema": "a INT", "watermark": "1 hour"}, "a watermark needs event_time="),
        ({"schema": "a INT", "max_offsets_per_batch": 0}, "max_offsets_per_batch must be 1 or more"),
    ],
)
def test_topic_wrong_declaration_is_refused_in_a_sentence(arguments: dict[str, object], told: str) -> None:
    with pytest.raises(JobDefinitionError, match=r"^(topic|input) 't'") as refused:
        topic("t", **arguments)  # type: ignore[arg-type]
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a/c", "..", "x" * 250])
def test_topic_that_no_broker_has_is_refused(name: str) -> None:
    with pytest.raises(
        JobDefinitionError, match=r"a topic's name is 1 to 249 letters, digits, '\.', '_' and '-'$"
    ):
        topic(name, schema="a INT")
    with pytest.raises(JobDefinitionError, match="a topic's name is 1 to 249"):
        topic("fine", name, schema="a INT")


def test_topic_parsers_of_other_text_are_other_declarations() -> None:
    formats = [
        "access",
        access_log(took_unit="ms"),
        access_log(took_unit="us"),
        "syslog",
        syslog("Europe/Berlin"),
        key_value("level STRING"),
        key_value("took_ms DOUBLE"),
        template("{level:word} {message}"),
        template("{level:word}: {message}"),
    ]
    declared = [repr(topic("t", format=each)) for each in formats]  # type: ignore[arg-type]
    assert len(set(declared)) == len(formats)
    again = repr(topic("t", format=template("{level:word} {message}")))
    assert again in declared, "the same declaration must be told alike in another process"
    assert " at 0x" not in "".join(declared)


def test_topic_csv_written_otherwise_is_another_declaration() -> None:
    forms = ["csv", csv(sep=";"), csv(null="NA"), csv(header="a,b"), csv(header=["b", "a"])]
    declared = {repr(topic("t", schema="a INT, b INT", format=each)) for each in forms}  # type: ignore[arg-type]
    assert len(declared) == len(forms)


@pytest.mark.parametrize("wrong", [{"sep": ""}, {"quote": "''"}, {"escape": ""}, {"header": "a,b,a"}])
def test_csv_wrong_declaration_is_refused_in_a_sentence(wrong: dict[str, str]) -> None:
    with pytest.raises(JobDefinitionError, match=r"^hw\.csv: "):
        csv(**wrong)  # type: ignore[arg-type]
