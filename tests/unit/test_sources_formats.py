"""What of a format's declaration is read and refused where it stands, before there is a session."""

import json
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.sources.decode import value_schema
from protobuf_descriptors import DEPARTURE, descriptors

FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}],
    }
)


def test_avro_schema_file_is_read_where_it_is_declared(tmp_path: Path) -> None:
    file = tmp_path / "flight.avsc"
    file.write_text(FLIGHT)
    assert hw.avro(file) == hw.avro(str(file)) == hw.avro(FLIGHT)
    with pytest.raises(JobDefinitionError, match=r"there is no file .*none\.avsc; give a record"):
        hw.avro(tmp_path / "none.avsc")
    with pytest.raises(JobDefinitionError, match="is not a record's with fields"):
        hw.avro('{"type": "string"}')
    with pytest.raises(JobDefinitionError, match="the schema is not JSON"):
        hw.avro("{'type': 'record'}")


def test_protobuf_wrong_declarations_are_refused_in_a_sentence(tmp_path: Path) -> None:
    departures = tmp_path / "flights.desc"
    departures.write_bytes(descriptors(DEPARTURE))
    with pytest.raises(JobDefinitionError, match=r"there is no file .*none\.desc; write it with protoc"):
        hw.protobuf(tmp_path / "none.desc", "flights.Departure")
    with pytest.raises(
        JobDefinitionError, match=r"has no message 'flights\.Arrival'; it has .*flights\.Departure"
    ):
        hw.protobuf(departures, "flights.Arrival")
    alone = descriptor_pb2.FileDescriptorSet.FromString(departures.read_bytes())
    del alone.file[0]
    (tmp_path / "alone.desc").write_bytes(alone.SerializeToString())
    (tmp_path / "text.desc").write_text('syntax = "proto3";')
    for name in ("alone.desc", "text.desc"):
        with pytest.raises(JobDefinitionError, match=r"is not a whole descriptor set; .*--include_imports"):
            hw.protobuf(tmp_path / name, "flights.Departure")
    again = descriptors(("Leg", [("next", FieldDescriptor.TYPE_MESSAGE, ".flights.Leg")]), ("None", []))
    (tmp_path / "again.desc").write_bytes(again)
    with pytest.raises(JobDefinitionError, match=r"flights\.Leg contains itself"):
        value_schema(hw.topic("t", format=hw.protobuf(tmp_path / "again.desc", "flights.Leg")))
    with pytest.raises(JobDefinitionError, match=r"flights\.None has no fields"):
        value_schema(hw.topic("t", format=hw.protobuf(tmp_path / "again.desc", "flights.None")))
    with pytest.raises(JobDefinitionError, match="the format 'protobuf' has columns of its own"):
        hw.topic("t", schema="carrier STRING", format=hw.protobuf(departures, "flights.Departure"))
