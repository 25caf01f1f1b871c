"""What is sent to the registry over HTTP and is wrong: each has its refusal, and none of it stays."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from headwater.registry.errors import STORE_FAILED, RegistryError
from headwater.registry.records import Record, decode, encode_key, encode_value
from headwater.registry.request import Request
from headwater.registry.requests import answer_of
from headwater.registry.service import Service
from headwater.registry.store import TopicStore

DEEP = b"[" * 100_000


class Store:
    """A topic in memory, whose records are written and read again."""

    timeout_s = 5.0

    def __init__(self, apply: Callable[[Record], None]) -> None:
        self.apply, self.changed = apply, threading.Condition(threading.RLock())

    def catch_up(self) -> None:
        pass

    def become_writer(self) -> None:
        pass

    def append(self, records: Sequence[Record]) -> None:
        for each in records:
            read = decode(encode_key(each.key), encode_value(each.key, each.value))
            assert read == each
            self.apply(read)


@pytest.fixture
def service() -> Service:
    return Service(cast("Callable[..., TopicStore]", Store))


def ask(service: Service, method: str, path: str, body: bytes = b"", **query: str | tuple[str, ...]) -> Any:
    """The answer; of a refusal its number."""
    parts = tuple(each for each in path.split("/") if each)
    try:
        given = {name: (value,) if isinstance(value, str) else value for name, value in query.items()}
        answer = answer_of(service, Request(method, parts, given, body))
    except RegistryError as error:
        json.dumps(error.message).encode()
        return error.code
    json.dumps(answer, allow_nan=False).encode()
    return answer


def schema(text: object, **more: object) -> bytes:
    return json.dumps({"schema": text if isinstance(text, str) else json.dumps(text), **more}).encode()


INT = '"int"'
SCHEMAS: dict[bytes, int] = {
    b"": 42201,
    b"{": 400,
    b"[]": 400,
    b"null": 400,
    b"\xff\xfe": 400,
    DEEP: 400,
    b'{"schema":1}': 42201,
    b'{"schema":""}': 42201,
    b'{"schema":"' + DEEP + b'"}': 42201,
    schema(INT, schemaType=5): 42201,
    schema(INT, schemaType="THRIFT"): 42201,
    schema(INT, references=5): 42201,
    schema(INT, references={"a": 1}): 42201,
    schema(INT, references="abc"): 42201,
    schema(INT, references=[{"name": "a", "subject": "s", "version": "x"}]): 42201,
    schema(INT, references=[{"name": "a", "subject": "missing", "version": 1}]): 42201,
    schema(INT).replace(b"}", b',"references":[{"name":"a","subject":"s","version":1e400}]}'): 42201,
    schema(INT, metadata=5): 42201,
    schema(INT, ruleSet=[1]): 42201,
    schema(INT, metadata={"properties": ["a"]}): 42201,
    schema(INT, metadata={"properties": {"a": {}}}): 42201,
    schema(INT, metadata={"tags": {"a": 1}}): 42201,
    schema(INT, metadata={"sensitive": "a"}): 42201,
    schema(INT, ruleSet={"domainRules": {}}): 42201,
    schema(INT, ruleSet={"domainRules": [5]}): 42201,
    schema({"type": "enum", "name": "E", "symbols": 5}): 42201,
    schema({"type": "record", "name": 5, "fields": 5}): 42201,
    schema(["null", {"type": "array"}]): 42201,
    schema(DEEP.decode(), schemaType="JSON"): 42201,
    schema({"type": 5}, schemaType="JSON"): 42201,
    schema("1e999", schemaType="JSON"): 42201,
    schema({"$ref": "#/nowhere"}, schemaType="JSON"): 42201,
    schema({"maximum": float("inf")}, schemaType="JSON"): 42201,
}


@pytest.mark.parametrize("place", range(len(SCHEMAS)))
def test_a_schema_that_is_none_is_refused_and_leaves_nothing(place: int, service: Service) -> None:
    body, code = [*SCHEMAS.items()][place]
    assert ask(service, "POST", "subjects/s/versions", body) == code
    assert ask(service, "POST", "compatibility/subjects/s/versions", body) == code
    assert ask(service, "GET", "subjects") == []


def test_an_id_that_is_none_is_refused(service: Service) -> None:
    for number in ("x", "1e99", 2**31):
        assert ask(service, "POST", "subjects/s/versions", schema(INT, id=number)) == 400
    assert ask(service, "POST", "subjects/s/versions", schema(INT).replace(b"}", b',"id":1e999}')) == 400
    assert ask(service, "POST", "subjects/s/versions", schema(INT, id=7)) == 42205
    assert ask(service, "GET", "subjects") == []


@pytest.mark.parametrize("value", [5, None, ["NONE"], {"a": 1}, "SOMETIMES", ""])
def test_a_level_or_a_mode_that_is_none_is_refused(value: object, service: Service) -> None:
    for path in ("config", "config/s"):
        if value is not None:  # of which nothing is to change
            assert ask(service, "PUT", path, json.dumps({"compatibility": value}).encode()) == 42203
    for path in ("mode", "mode/s"):
        assert ask(service, "PUT", path, json.dumps({"mode": value}).encode()) == 42204
    assert ask(service, "GET", "config") == {"compatibilityLevel": "BACKWARD"}


def test_the_newest_version_with_all_of_some_properties_is_found(service: Service) -> None:
    for number, (major, stage) in enumerate((("1", "live"), ("2", "live"), ("1", "test")), start=1):
        properties = {"major": major, "stage": stage, "n": number}
        body = schema({"type": "enum", "name": "E", "symbols": ["A"]}, metadata={"properties": properties})
        assert ask(service, "POST", "subjects/s/versions", body)["version"] == number
    found = ask(service, "GET", "subjects/s/metadata", key=("major", "stage"), value=("1", "live"))
    assert found["version"] == 1
    assert ask(service, "GET", "subjects/s/metadata", key="stage", value="live")["version"] == 2
    assert ask(service, "GET", "subjects/s/metadata", key="stage", value="no") == 40403
    ask(service, "DELETE", "subjects/s/versions/3")
    assert ask(service, "GET", "subjects/s/metadata", key="stage", value="test") == 40403
    deleted = ask(service, "GET", "subjects/s/metadata", key="stage", value="test", deleted="true")
    assert deleted["version"] == 3


def test_a_context_has_an_address(service: Service) -> None:
    for address in ("contexts/.web", "contexts/:.web:", "contexts/web"):
        assert ask(service, "POST", f"{address}/subjects/s/versions", schema(INT))["id"] == 1
    assert ask(service, "POST", "subjects/:.:s/versions", schema('"long"'))["id"] == 1
    assert ask(service, "GET", "subjects") == [":.web:s", "s"]
    assert ask(service, "GET", "contexts/.web/subjects") == [":.web:s"]
    assert ask(service, "GET", "subjects", subjectPrefix=":*:s") == [":.web:s", "s"]
    assert ask(service, "GET", "contexts") == [".", ".web"]
    assert ask(service, "GET", "contexts/.web/schemas/ids/1/schema") == INT
    assert ask(service, "GET", "contexts/.web/schemas/ids/1/schema", subject="s") == INT
    assert ask(service, "GET", "schemas/ids/1/schema") == '"long"'
    assert ask(service, "GET", "contexts/.web/schemas")[0]["subject"] == ":.web:s"
    assert ask(service, "PUT", "contexts/.web/config", b'{"compatibility":"NONE"}')
    assert ask(service, "GET", "config/:.web:") == {"compatibilityLevel": "NONE"}
    assert ask(service, "GET", "contexts/.web/config/s", defaultToGlobal="true") == {
        "compatibilityLevel": "NONE"
    }
    assert (
        ask(service, "GET", "config/:.:")
        == ask(service, "GET", "config")
        == {"compatibilityLevel": "BACKWARD"}
    )
    assert ask(service, "POST", "contexts/.web/compatibility/subjects/s/versions", schema('"string"'))[
        "is_compatible"
    ]
    assert ask(service, "GET", "contexts/a:b/subjects") == 400
    assert len(ask(service, "GET", f"schemas/guids/{ask(service, 'GET', 'schemas/ids/1')['guid']}/ids")) == 1


def test_what_a_schema_of_a_context_uses_is_found_by_its_plain_name(service: Service) -> None:
    ask(service, "POST", "subjects/:.web:money/versions", schema({"type": "integer"}, schemaType="JSON"))
    uses = [{"name": "money", "subject": "money", "version": 1}]
    body = schema({"$ref": "money"}, schemaType="JSON", references=uses)
    number = ask(service, "POST", "subjects/:.web:order/versions", body)["id"]
    path = f"schemas/ids/{number}"
    assert ask(service, "GET", path, subject=":.web:order")["references"] == uses
    qualified = ask(service, "GET", path, subject=":.web:order", referenceFormat="qualified")["references"]
    assert qualified == [{**uses[0], "subject": ":.web:money"}]
    assert ask(service, "GET", "subjects/money/versions/1")["subject"] == ":.web:money"
    assert ask(service, "DELETE", "subjects/money/versions/1") == 40401
    ask(service, "POST", "subjects/money/versions", schema({"type": "string"}, schemaType="JSON"))
    assert ask(service, "GET", "subjects/money/versions/latest")["subject"] == "money"
    assert ask(service, "GET", "subjects/money/versions/2") == 40402


def test_an_alias_stands_for_another_subject(service: Service) -> None:
    ask(service, "POST", "subjects/clicks-value/versions", schema(INT))
    ask(service, "PUT", "config/old-value", b'{"alias":"clicks-value"}')
    assert ask(service, "GET", "subjects/old-value/versions/latest")["subject"] == "clicks-value"
    assert ask(service, "GET", "config/old-value") == {
        "compatibilityLevel": "BACKWARD",
        "alias": "clicks-value",
    }
    ask(service, "PUT", "config/old-value", b'{"alias":null}')
    assert ask(service, "GET", "subjects/old-value/versions/latest") == 40401


def test_schemas_are_listed_by_the_rules_that_they_have_and_with_their_aliases(service: Service) -> None:
    encrypted = {"domainRules": [{"name": "r", "type": "ENCRYPT"}, {"name": "c", "type": "CEL"}]}
    moved = {"migrationRules": [{"name": "m", "type": "JSONATA"}]}
    for subject, text, rules in (
        *(("a", INT, encrypted), ("a", '"long"', moved), ("b", INT, encrypted), ("c", '"bytes"', None)),
    ):
        body = schema(text, **({} if rules is None else {"ruleSet": rules}))
        assert ask(service, "PUT", f"config/{subject}", b'{"compatibility":"NONE"}')
        assert ask(service, "POST", f"subjects/{subject}/versions", body)["version"]
    ask(service, "PUT", "config/old", b'{"alias":"c"}')
    ask(service, "PUT", "config/older", b'{"alias":"c"}')

    def listed(**query: str) -> list[tuple[str, int, object]]:
        answer = ask(service, "GET", "schemas", **query)
        return [(each["subject"], each["version"], each.get("aliases")) for each in answer]

    assert listed(ruleType="ENCRYPT") == [("a", 1, None), ("b", 1, None)]
    assert listed(ruleType="JSONATA", subjectPrefix="a") == [("a", 2, None)]
    assert listed(ruleType="ENCRYPT", latestOnly="true") == [("b", 1, None)]  # of the newest ones
    assert listed(ruleType="ENCRYPT", offset="1", limit="1") == [("b", 1, None)]
    assert listed(ruleType="encrypt") == []
    assert listed(subjectPrefix="ol") == []
    assert listed(subjectPrefix="ol", aliases="true") == [("c", 1, ["old", "older"])]
    assert listed(subjectPrefix="b", aliases="true") == [("b", 1, None)]
    assert listed(aliases="true", latestOnly="true")[-1] == ("c", 1, ["old", "older"])
    ask(service, "DELETE", "subjects/c")
    assert listed(subjectPrefix="ol", aliases="true") == []
    assert listed(subjectPrefix="ol", aliases="true", deleted="true") == [("c", 1, ["old", "older"])]


def test_a_page_of_nothing_is_all_and_the_first_of_two_values_counts(service: Service) -> None:
    for text in (INT, '"long"', '"float"'):
        ask(service, "POST", "subjects/s/versions", schema(text))
    for limit in ("0", "-1", "-7"):
        assert ask(service, "GET", "subjects/s/versions", limit=limit, offset="1") == [2, 3]
    assert ask(service, "GET", "subjects/s/versions", limit=("1", "2")) == [1]


def test_an_id_is_looked_up_by_the_alias_of_a_subject(service: Service) -> None:
    ask(service, "POST", "subjects/t/versions", schema('"bytes"'))
    ask(service, "POST", "subjects/:.web:s/versions", schema(INT))
    assert ask(service, "GET", "schemas/ids/1", subject="old")["schema"] == '"bytes"'
    ask(service, "PUT", "config/old", b'{"alias":":.web:s"}')
    assert ask(service, "GET", "schemas/ids/1", subject="old")["subject"] == ":.web:s"
    assert ask(service, "GET", "schemas/ids/1/versions", subject="old") == [
        {"subject": ":.web:s", "version": 1}
    ]


def test_a_version_that_is_forced_need_not_be_compatible(service: Service) -> None:
    ask(service, "POST", "subjects/s/versions", schema('"long"'))
    assert ask(service, "POST", "subjects/s/versions", schema(INT)) == 409
    assert ask(service, "POST", "subjects/s/versions", schema(INT), force="true")["version"] == 2
    assert ask(service, "POST", "subjects/s/versions", schema("{"), force="true") == 42201


def test_a_schema_that_is_none_is_a_reason_where_reasons_are_asked_for(service: Service) -> None:
    ask(service, "POST", "subjects/s/versions", schema(INT))
    for path in ("compatibility/subjects/s/versions", "compatibility/subjects/s/versions/latest"):
        answer = ask(service, "POST", path, schema("{"), verbose="true")
        assert answer["is_compatible"] is False
        assert answer["messages"][0].startswith("Invalid schema of type AVRO")
        assert ask(service, "POST", path, schema("{")) == 42201
        assert ask(service, "POST", path, schema(INT), verbose="true") == {
            "is_compatible": True,
            "messages": [],
        }


def test_a_version_to_compare_with_must_exist_and_the_newest_need_not(service: Service) -> None:
    assert ask(service, "POST", "compatibility/subjects/s/versions/4", schema(INT)) == 40402
    assert ask(service, "POST", "compatibility/subjects/s/versions/latest", schema(INT))["is_compatible"]
    assert ask(service, "POST", "compatibility/subjects/s/versions/x", schema(INT)) == 42202


def test_what_is_set_is_told_as_it_stands(service: Service) -> None:
    assert ask(service, "PUT", "config/s", b'{"compatibility":"full"}') == {"compatibility": "FULL"}
    both = {"compatibility": "FULL", "normalize": True}
    assert ask(service, "PUT", "config/s", b'{"normalize":"true"}') == both
    assert ask(service, "GET", "config/s") == {"compatibilityLevel": "FULL", "normalize": True}
    assert ask(service, "PUT", "config/s", b'{"normalize":"false"}') == {**both, "normalize": False}
    for wrong in (b'{"normalize":"yes"}', b'{"normalize":[]}', b'{"alias":{}}', b'{"compatibilityGroup":1}'):
        assert ask(service, "PUT", "config/s", wrong) == 400
    assert ask(service, "GET", "config/s") == {"compatibilityLevel": "FULL", "normalize": False}


def test_what_a_subject_does_not_have_cannot_be_taken_back(service: Service) -> None:
    assert (ask(service, "GET", "config/s"), ask(service, "GET", "mode/s")) == (40408, 40409)
    assert (ask(service, "DELETE", "config/s"), ask(service, "DELETE", "mode/s")) == (40401, 40401)


def test_the_modes_of_a_contexts_subjects_are_taken_back_with_it(service: Service) -> None:
    for subject in ("s", ":.web:s", ":.web:t"):
        ask(service, "PUT", f"mode/{subject}", b'{"mode":"READONLY"}')
    assert ask(service, "DELETE", "mode/:.web:", recursive="true") == {"mode": None}
    assert ask(service, "GET", "mode/:.web:t") == 40409
    assert ask(service, "DELETE", "mode/:.web:") == 40401
    assert ask(service, "GET", "mode/s") == {"mode": "READONLY"}
    assert ask(service, "DELETE", "mode", recursive="true") == {"mode": "READWRITE"}
    assert ask(service, "GET", "mode/s") == 40409


def test_a_context_without_subjects_is_deleted(service: Service) -> None:
    ask(service, "POST", "subjects/:.web:s/versions", schema(INT))
    ask(service, "DELETE", "subjects/:.web:s")
    assert ask(service, "DELETE", "contexts/.web") == 42211
    ask(service, "DELETE", "subjects/:.web:s", permanent="true")
    assert ask(service, "DELETE", "contexts/:.web:") is None
    assert ask(service, "GET", "contexts") == ["."]
    assert ask(service, "DELETE", "contexts/.web") == 40401


def test_rules_alone_make_a_version_of_the_schema_before(service: Service) -> None:
    rules = {"ruleSet": {"domainRules": [{"name": "r", "type": "CEL", "expr": "true"}]}}
    assert ask(service, "POST", "subjects/s/versions", json.dumps(rules).encode()) == 42201
    ask(service, "POST", "subjects/s/versions", schema({"type": "integer"}, schemaType="JSON"))
    assert ask(service, "POST", "subjects/s/versions", json.dumps(rules).encode())["version"] == 2
    newest = ask(service, "GET", "subjects/s/versions/2")
    assert (newest["schema"], newest["schemaType"], newest["ruleSet"]) == (
        '{"type":"integer"}',
        "JSON",
        rules["ruleSet"],
    )
    assert ask(service, "POST", "compatibility/subjects/s/versions", json.dumps(rules).encode()) == 42201


def test_a_schema_is_found_by_a_name_that_a_context_has(service: Service) -> None:
    ask(service, "POST", "subjects/:.web:s/versions", schema(INT))
    ask(service, "POST", "subjects/:.app:s/versions", schema('"long"'))
    assert ask(service, "POST", "subjects/s", schema(INT))["subject"] == ":.web:s"
    assert ask(service, "POST", "subjects/s", schema('"bytes"')) == 40401
    ask(service, "POST", "subjects/s/versions", schema('"bytes"'))
    assert ask(service, "POST", "subjects/s", schema('"double"')) == 40403


def test_an_id_of_a_subject_says_which_version_it_is(service: Service) -> None:
    ask(service, "POST", "subjects/:.web:s/versions", schema(INT))
    found = ask(service, "GET", "schemas/ids/1", subject="s", fetchMaxId="true")
    assert (found["subject"], found["version"], found["maxId"]) == (":.web:s", 1, 1)
    ask(service, "POST", "subjects/t/versions", schema(INT))
    assert not {"subject", "version"} & ask(service, "GET", "schemas/ids/1").keys()


def test_versions_that_are_deleted_may_be_listed_as_negative(service: Service) -> None:
    for text in (INT, '"long"'):
        ask(service, "POST", "subjects/s/versions", schema(text))
    ask(service, "DELETE", "subjects/s/versions/1")
    assert ask(service, "GET", "subjects/s/versions", deletedAsNegative="true") == [-1, 2]
    assert ask(service, "GET", "subjects/s/versions", deleted="true", deletedOnly="true") == [1]
    assert ask(service, "GET", "subjects/s/metadata") == 40403  # no version has any


def test_the_mode_of_all_is_taken_back(service: Service) -> None:
    ask(service, "PUT", "mode", b'{"mode":"READONLY"}')
    assert ask(service, "DELETE", "mode") == {"mode": "READONLY"}
    assert ask(service, "GET", "mode") == {"mode": "READWRITE"}
    assert ask(service, "DELETE", "mode") == {"mode": "READWRITE"}


MANY_DIGITS = "1" * 5000
PATHS = (
    *("", "schemas", "schemas/types", "schemas/ids/1", "schemas/ids/x", "schemas/ids/99999999999999999999"),
    *("schemas/ids/1/schema", "schemas/ids/1/subjects", "schemas/ids/1/versions", "schemas/guids/x"),
    *("schemas/guids/x/ids", "subjects", "subjects/s", "subjects/s/versions", "subjects/s/metadata"),
    *(
        "subjects/s/versions/1",
        "subjects/s/versions/latest",
        "subjects/s/versions/-1",
        "subjects/s/versions/x",
    ),
    *(
        "subjects/s/versions/1/schema",
        "subjects/s/versions/1/referencedby",
        "subjects/\ud800",
        "subjects/\x00",
    ),
    *(f"schemas/ids/{MANY_DIGITS}", f"subjects/s/versions/{MANY_DIGITS}"),
    *("compatibility/subjects/s/versions", "compatibility/subjects/s/versions/latest", "config", "config/s"),
    *(
        "mode",
        "mode/s",
        "contexts",
        "contexts/.x/subjects/s",
        "contexts/.x/mode",
        "contexts/.x",
        "subjects/:.x",
        "v1/metadata/id",
        "v1/metadata/version",
        "nothing",
    ),
)
QUERIES: tuple[dict[str, str], ...] = (
    {"deleted": "true", "permanent": "true"},
    {"format": "x"},
    {"format": "serialized", "fetchMaxId": "true"},
    {"limit": "-5", "offset": "x"},
    {"offset": "5", "limit": "1", "latestOnly": "true"},
    {"key": "a", "value": "b"},
    {"subject": ":.x:s"},
    {"force": "true", "normalize": "true", "verbose": "true"},
)


def test_whatever_is_asked_has_an_answer_or_a_refusal_of_the_caller(service: Service) -> None:
    for query, method, path in itertools.product(QUERIES, ("GET", "POST", "PUT", "DELETE"), PATHS):
        properties = {"metadata": {"properties": {"a": "b"}}}
        ask(
            service, "POST", "subjects/s/versions", schema(INT, **properties)
        )  # that there is something to ask about
        answer = ask(service, method, path, b"{}" if method in ("POST", "PUT") else b"", **query)
        assert answer not in (500, STORE_FAILED), (query, method, path)
