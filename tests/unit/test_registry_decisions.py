"""The registry's decisions, without a broker: each record is written and read again on its way into the state."""

import json
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from headwater.registry import decisions, settings
from headwater.registry.change import Change
from headwater.registry.errors import RegistryError
from headwater.registry.records import (
    Record,
    Reference,
    SchemaKey,
    SchemaText,
    SchemaValue,
    decode,
    encode_key,
    encode_value,
)
from headwater.registry.state import State

PLAIN = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]}'


def wider(default: str = "") -> str:
    return (
        '{"type":"record","name":"R","fields":[{"name":"x","type":"string"},{"name":"y","type":"int"'
        + default
        + "}]}"
    )


def carry_out(state: State, change: Change) -> object:
    for each in change.records:
        record = decode(encode_key(each.key), encode_value(each.key, each.value))
        assert record == each
        state.apply(record)
    return change.answer


def register(
    state: State, subject: str, text: str, *references: Reference, **contract: dict[str, object]
) -> SchemaValue:
    schema = SchemaText(text=text, references=references, contract=contract)
    answer = carry_out(state, decisions.register(state, subject, schema))
    assert isinstance(answer, SchemaValue)
    return answer


def refused(code: int) -> AbstractContextManager[object]:
    return pytest.raises(RegistryError, check=lambda error: error.code == code)


def test_a_schema_has_one_id_in_all_subjects_whatever_its_layout() -> None:
    state = State()
    first = register(state, "a-value", PLAIN)
    again = register(state, "a-value", json.dumps(json.loads(PLAIN), indent=4))
    other = register(state, "b-value", PLAIN.replace('"string"', '{"type": "string"}'))
    assert (first.id, first.version, again, other.id) == (1, 1, first, 1)
    assert register(state, "b-value", wider(',"default":0')).id == 2


@pytest.mark.parametrize(
    ("level", "adds_required", "adds_default", "removes"),
    [
        ("NONE", True, True, True),
        ("BACKWARD", False, True, True),
        ("FORWARD", True, True, False),
        ("FULL", False, True, False),
    ],
)
def test_levels_allow_what_they_are_to(
    level: str, adds_required: bool, adds_default: bool, removes: bool
) -> None:
    def allowed(before: str, after: str) -> bool:
        state = State()
        carry_out(state, settings.set_config(state, None, {"compatibility": level}))
        register(state, "s", before)
        return not decisions.check(state, "s", SchemaText(text=after))

    assert allowed(PLAIN, wider()) is adds_required
    assert allowed(PLAIN, wider(',"default":0')) is adds_default
    assert allowed(wider(), PLAIN) is removes


def test_transitive_levels_compare_with_all_versions() -> None:
    # y is an int, then gone, then a text: each step is well, the first and the last are not.
    state = State()
    register(state, "s", wider(',"default":0'))
    register(state, "s", PLAIN)
    text = wider(',"default":""').replace('"int"', '"string"')
    assert not decisions.check(state, "s", SchemaText(text=text))
    carry_out(state, settings.set_config(state, "s", {"compatibility": "backward_transitive"}))
    reasons = decisions.check(state, "s", SchemaText(text=text))
    assert "cannot read version 1" in reasons[0]
    with refused(409):
        register(state, "s", text)


def test_what_is_registered_already_is_taken_with_its_faults() -> None:
    state = State()
    faulty = PLAIN.replace('"string"}', '"string","default":5}')
    for ask in (decisions.register, decisions.check):
        with refused(42201):
            ask(state, "s", SchemaText(text=faulty))
    value = SchemaValue(subject="s", version=1, id=1, schema=SchemaText(text=faulty))
    state.apply(Record(key=SchemaKey(subject="s", version=1), value=value))
    assert register(state, "s", faulty) == value
    assert register(state, "s", PLAIN).version == 2


def test_a_used_schema_must_exist_and_stays() -> None:
    state = State()
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'
    reference = Reference(name="R", subject="r", version=1)
    with refused(42201):
        register(state, "s", uses, reference)
    register(state, "r", PLAIN)
    register(state, "s", uses, reference)
    with refused(42206):
        decisions.delete_subject(state, "r", permanent=False)
    carry_out(state, decisions.delete_subject(state, "s", permanent=False))
    carry_out(state, decisions.delete_subject(state, "r", permanent=False))
    with refused(42206):  # whoever reads values of s, by its id, needs it yet
        decisions.delete_subject(state, "r", permanent=True)


def test_a_used_schema_is_the_version_that_it_was_when_the_user_came() -> None:
    state = State()
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'
    register(state, "r", PLAIN)
    newest = Reference(name="R", subject="r", version=-1)
    first = register(state, "s", uses, newest)
    assert first.schema.references == (Reference(name="R", subject="r", version=1),)
    register(state, "r", wider(',"default":0'))
    second = register(state, "s", uses, newest)
    assert (second.version, second.schema.references[0].version) == (2, 2)
    assert register(state, "s", uses, *first.schema.references) == first


def test_what_many_schemas_use_is_walked_once() -> None:
    state = State()
    uses: tuple[Reference, ...] = ()
    for number in range(
        40
    ):  # each uses the one before by two names, so that there are 2^39 ways to the first
        properties = {each.name: {"$ref": each.name} for each in uses}
        schema = SchemaText(text=json.dumps({"properties": properties}), kind="JSON", references=uses)
        carry_out(state, decisions.register(state, f"s{number}", schema))
        uses = tuple(Reference(name=f"{name}{number}", subject=f"s{number}", version=1) for name in "ab")
    assert len(state.subjects) == 40


def test_a_schema_that_came_with_what_it_uses_in_place_is_found() -> None:
    state = State()
    register(state, "r", PLAIN)
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":%s}]}'
    value = register(state, "s", uses % '"R"', Reference(name="R", subject="r", version=1))
    assert decisions.lookup(state, "s", SchemaText(text=uses % PLAIN)) == value
    assert register(state, "s", uses % PLAIN) == value
    with refused(40403):
        decisions.lookup(state, "s", SchemaText(text=uses % wider()))


def test_a_subject_whose_versions_use_each_other_can_be_deleted() -> None:
    state = State()
    register(state, "s", PLAIN)
    carry_out(state, settings.set_config(state, "s", {"compatibility": "NONE"}))
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'
    register(state, "s", uses, Reference(name="R", subject="s", version=1))
    with refused(42206):
        decisions.delete_version(state, "s", "1", permanent=False)
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=False)) == [1, 2]
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=True)) == [1, 2]


def test_latest_is_never_a_deleted_version() -> None:
    state = State()
    register(state, "s", PLAIN)
    register(state, "s", wider(',"default":0'))
    carry_out(state, decisions.delete_version(state, "s", "2", permanent=False))
    assert decisions.version(state, "s", "latest", deleted=True).version == 1
    with refused(40407):  # version 2 stays: nobody named it
        decisions.delete_version(state, "s", "latest", permanent=True)
    carry_out(state, decisions.delete_version(state, "s", "1", permanent=False))
    with refused(40402):
        decisions.version(state, "s", "latest", deleted=True)


ENCRYPT = {"domainRules": [{"name": "pii", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}]}


def test_a_version_without_rules_has_those_of_the_one_before() -> None:
    state = State()
    first = register(state, "s", PLAIN, ruleSet=ENCRYPT, metadata={"properties": {"owner": "ads"}})
    # A producer knows the text alone, and looks for it.
    assert decisions.lookup(state, "s", SchemaText(text=PLAIN)) == first
    assert register(state, "s", PLAIN) == first
    second = register(state, "s", wider(',"default":0'))
    assert second.schema.contract == first.schema.contract
    other = register(
        state, "s", PLAIN, ruleSet={"domainRules": []}, metadata={"properties": {"owner": "web"}}
    )
    assert (other.version, other.schema.contract["metadata"]) == (3, {"properties": {"owner": "web"}})
    carry_out(state, settings.set_config(state, "s", {"overrideRuleSet": ENCRYPT}))
    carry_out(
        state, settings.set_config(state, "s", {"defaultMetadata": {"properties": {"owner": "-", "a": "b"}}})
    )
    fourth = register(state, "s", PLAIN, metadata={"properties": {"owner": "web"}})
    assert fourth.schema.contract == {
        "metadata": {"properties": {"owner": "web", "a": "b"}},
        "ruleSet": ENCRYPT,
    }
    carry_out(state, settings.set_config(state, "s", {"overrideRuleSet": None, "defaultMetadata": None}))
    assert settings.config_of(state, "s") == {}


def test_what_is_normalized_is_one_schema_in_any_order() -> None:
    state = State()
    texts = [
        '{"type":"object","properties":{"b":{"type":"string"},"a":{}}}',
        '{"properties":{"a":{},"b":{"type":"string"}},"type":"object"}',
    ]
    one, other = (SchemaText(text=each, kind="JSON") for each in texts)
    first = decisions.register(state, "s", one)
    carry_out(state, first)
    with refused(40403):
        decisions.lookup(state, "s", other)
    assert decisions.lookup(state, "s", other, normalize=True) == first.answer
    assert decisions.register(state, "s", other, normalize=True).answer == first.answer
    carry_out(state, settings.set_config(state, "t", {"normalize": True}))
    carry_out(state, decisions.register(state, "t", other))
    assert state.live("t")[0].schema.text == '{"properties":{"a":{},"b":{"type":"string"}},"type":"object"}'
    assert decisions.register(state, "t", one).records == ()
    register(state, "r", PLAIN)
    uses = '{"type":"record","name":"S","z":1,"a":{"y":1,"x":2},"fields":[{"name":"r","type":"R"}]}'
    twice = (Reference(name="R", subject="r", version=1), Reference(name="R", subject="r", version=-1))
    value = carry_out(
        state, decisions.register(state, "u", SchemaText(text=uses, references=twice), normalize=True)
    )
    assert isinstance(value, SchemaValue)
    assert value.schema.references == twice[:1]
    assert value.schema.text.endswith('"fields":[{"name":"r","type":"R"}],"a":{"x":2,"y":1},"z":1}')


def test_the_number_of_a_version_in_its_metadata_makes_no_other_schema() -> None:
    state = State()
    first = register(state, "s", PLAIN, metadata={"properties": {"confluent:version": "9"}})
    assert first.schema.contract == {"metadata": {"properties": {"confluent:version": "1"}}}
    assert register(state, "s", PLAIN) == first
    second = register(state, "s", wider(',"default":0'))
    assert second.schema.contract == {"metadata": {"properties": {"confluent:version": "2"}}}


def test_a_version_in_a_request_is_registered_as_a_version_and_minus_one_is_the_newest() -> None:
    """The order of Confluent's own test of `confluent:version`, each with the version that it gives."""
    state = State()

    def sent(properties: dict[str, object] | None) -> SchemaText:
        contract = {} if properties is None else {"metadata": {"properties": properties}}
        return SchemaText(text=PLAIN, contract=contract)

    def put(version: int | None, number: int, **properties: object) -> None:
        schema = sent(properties or None)
        value = carry_out(state, decisions.register(state, "s", schema, version=version))
        assert isinstance(value, SchemaValue)
        assert (value.version, value.id) == (number, number)
        assert len(state.all("s")) == state.all("s")[-1].version

    def found(number: int, properties: dict[str, object] | None) -> None:
        assert decisions.lookup(state, "s", sent(properties)).version == number

    def said(number: int) -> object:
        return (state.subjects["s"][number].schema.contract.get("metadata") or {}).get("properties")

    put(None, 1)
    put(-1, 1)
    assert said(1) is None
    put(2, 2)
    put(-1, 2)
    assert said(2) == {"confluent:version": "2"}
    found(1, None)
    found(1, {"confluent:version": "1"})
    found(2, {"confluent:version": "2"})
    carry_out(state, decisions.delete_version(state, "s", "1", permanent=False))
    found(2, None)
    put(None, 2)
    put(3, 3)
    put(-1, 3)
    with refused(42201):
        decisions.register(state, "s", sent(None), version=3)
    put(4, 4)
    found(4, None)
    put(None, 5, **{"confluent:version": "-1"})
    assert said(5) == {"confluent:version": "5"}
    put(None, 2, **{"confluent:version": "2"})
    put(None, 3, **{"confluent:version": "3"})
    put(None, 6, **{"confluent:version": "0"})
    assert decisions.register(state, "s", sent({})).answer.version == 6
    put(None, 7, mykey="myvalue")
    assert said(7) == {"mykey": "myvalue"}
    put(-1, 8)
    assert said(8) == {"mykey": "myvalue", "confluent:version": "8"}
    found(7, {"mykey": "myvalue"})
    carry_out(state, decisions.delete_version(state, "s", "7", permanent=False))
    found(8, {"mykey": "myvalue"})


def test_a_schema_that_came_back_as_the_newest_version_is_found_by_what_the_configuration_adds() -> None:
    state = State()
    carry_out(state, settings.set_config(state, "s", {"defaultMetadata": {"properties": {"team": "web"}}}))
    for _ in range(2):
        for version in (None, -1):
            value = carry_out(state, decisions.register(state, "s", SchemaText(text=PLAIN), version=version))
            assert isinstance(value, SchemaValue)
            assert value.version == 1


@pytest.mark.parametrize("name", ["latest", "LATEST", " latest ", "-1", " -1", "2", "+2", "002", " 2"])
def test_a_version_is_named_as_java_reads_it(name: str) -> None:
    state = State()
    register(state, "s", PLAIN)
    newest = register(state, "s", wider(',"default":0'))
    assert decisions.version(state, "s", name) == newest
    for wrong in ("0", "-2", "", "1.0", "2147483648", "++1", "+"):
        with refused(42202):
            decisions.version(state, "s", wrong)


def test_versions_of_another_group_are_not_compared() -> None:
    state = State()
    carry_out(state, settings.set_config(state, "s", {"compatibilityGroup": "major"}))
    register(state, "s", PLAIN, metadata={"properties": {"major": "1"}})
    with refused(409):
        register(state, "s", wider(), metadata={"properties": {"major": "1"}})
    assert register(state, "s", wider(), metadata={"properties": {"major": "2"}}).version == 2
    assert register(state, "s", wider(',"default":0'), metadata={"properties": {"major": "1"}}).version == 3


@pytest.mark.parametrize(
    "config",
    [
        {"validateFields": True},
        {"validateRules": True},
        {"compatibilityPolicy": "LOGICAL"},
        {"overrideRuleSet": {"domainRules": 5}},
    ],
)
def test_a_configuration_that_nothing_would_come_of_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(RegistryError, check=lambda error: error.status == 422):
        settings.set_config(State(), "s", config)


def test_a_context_has_ids_references_and_settings_of_its_own() -> None:
    state = State()
    register(state, "r", wider())
    inside = register(state, ":.web:r", PLAIN)
    assert (inside.id, state.all_contexts()) == (1, [".", ".web"])
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'
    user = register(state, ":.web:s", uses, Reference(name="R", subject="r", version=-1))
    assert state.referenced_by(":.web:r", 1) == [user]
    assert state.referenced_by("r", 1) == []
    with refused(42206):
        decisions.delete_subject(state, ":.web:r", permanent=False)
    found = state.by_id(1, ":.web:r")
    assert found is not None
    assert found == state.by_id(1, ":.web:") == inside
    assert state.by_id(1) == state.by_id(1, "r") == state.live("r")[0]
    assert state.by_id(2, "s") == user  # by its name in another context, as there is no such id in this one
    carry_out(state, settings.set_config(state, ":.web:", {"compatibility": "FULL"}))
    carry_out(state, settings.set_mode(state, ":.web:", "READONLY"))
    carry_out(state, settings.set_config(state, ":.__GLOBAL:", {"compatibility": "NONE"}))
    levels = [settings.level_of(state, each) for each in (":.web:r", ":.web:new", ":.app:r", "r", None)]
    assert levels == ["FULL", "FULL", "NONE", "NONE", "NONE"]
    assert (settings.mode_of(state, ":.web:r"), settings.mode_of(state, "r")) == ("READONLY", "READWRITE")
    with refused(42205):
        settings.set_mode(state, ":.web:", "IMPORT")
    assert settings.set_mode(state, ":.app:", "IMPORT").answer == "IMPORT"


def test_deleting_softly_keeps_the_id_and_for_good_does_not() -> None:
    state = State()
    register(state, "s", PLAIN)
    second = register(state, "s", wider(',"default":0'))
    with refused(40405):
        decisions.delete_subject(state, "s", permanent=True)
    with refused(40407):
        decisions.delete_version(state, "s", "2", permanent=True)
    assert carry_out(state, decisions.delete_version(state, "s", "latest", permanent=False)) == 2
    with refused(40406):
        decisions.delete_version(state, "s", "2", permanent=False)
    assert state.by_id(second.id) is not None
    # It comes back as another version, as which it is not deleted.
    assert register(state, "s", wider(',"default":0')) == replace(second, version=3)
    assert [each.version for each in state.all("s")] == [1, 3]
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=False)) == [1, 3]
    with refused(40404):
        decisions.delete_subject(state, "s", permanent=False)
    with refused(40401):
        decisions.version(state, "s", "latest")
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=True)) == [1, 3]
    assert state.by_id(1) is None
    assert register(state, "s", PLAIN).id == 3  # 1 and 2 may stand in records


def test_a_version_that_was_deleted_softly_and_is_used_stays_when_it_comes_back() -> None:
    state = State()
    register(state, "s", PLAIN)
    uses = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'
    register(state, "u", uses, Reference(name="R", subject="s", version=1))
    for subject in ("u", "s"):
        carry_out(state, decisions.delete_subject(state, subject, permanent=False))
    assert register(state, "s", PLAIN).version == 2
    assert [each.version for each in state.all("s")] == [1, 2]


@pytest.mark.parametrize("whole", [True, False])
def test_a_subject_keeps_its_settings_until_it_is_deleted_for_good(whole: bool) -> None:
    state = State()
    for text in (PLAIN, wider(',"default":0')):
        register(state, "s", text)
    carry_out(state, settings.set_config(state, "s", {"compatibility": "FULL"}))
    carry_out(state, settings.set_mode(state, "s", "READWRITE"))
    for permanent in (False, True):
        assert settings.level_of(state, "s") == "FULL"
        if whole:
            carry_out(state, decisions.delete_subject(state, "s", permanent=permanent))
        else:
            for number in ("1", "2"):
                carry_out(state, decisions.delete_version(state, "s", number, permanent=permanent))
    assert (state.configs, state.modes) == ({}, {})


def test_modes_decide_who_may_register() -> None:
    state = State()
    register(state, "s", PLAIN)
    carry_out(state, settings.set_mode(state, None, "readonly"))
    with refused(42205):
        register(state, "s", wider(',"default":0'))
    assert register(state, "s", PLAIN).version == 1  # which it is already
    carry_out(state, settings.set_mode(state, "other", "READWRITE"))
    assert register(state, "other", wider()).id == 2
    carry_out(state, settings.set_mode(state, None, "READONLY_OVERRIDE"))
    with refused(42205):
        register(state, "other", PLAIN)
    with refused(42204):
        settings.set_mode(state, None, "WRITEONLY")


def test_import_keeps_the_ids_of_another_registry() -> None:
    state = State()
    with refused(42205):
        decisions.register(state, "s", SchemaText(text=PLAIN), import_id=17)
    carry_out(state, settings.set_mode(state, "s", "IMPORT"))
    with refused(42205):
        register(state, "s", PLAIN)
    carry_out(state, decisions.register(state, "s", SchemaText(text=PLAIN), import_id=17, version=4))
    assert register(state, "s", PLAIN).id == 17  # a producer that registers its schema goes on
    assert [(each.id, each.version) for each in state.live("s")] == [(17, 4)]
    with refused(42205):  # the id is another schema's
        decisions.register(state, "s", SchemaText(text=wider()), import_id=17)
    carry_out(state, settings.set_mode(state, "s", "READWRITE"))
    with refused(42201):
        decisions.register(state, "s", SchemaText(text=wider(',"default":0')), version=9)
    assert register(state, "t", wider()).id == 18
    with refused(42205):
        settings.set_mode(state, "t", "IMPORT")


@pytest.mark.parametrize("text", ["", "0", "-2", "1.0", "٣", "2147483648", "newest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    state = State()
    register(state, "s", PLAIN)
    with refused(42202):
        decisions.version(state, "s", text)


@pytest.mark.parametrize(
    "subject",
    ["", " s", "a\nb", "\x1b[2J", "\x9b2J", ":.web:", ":.__GLOBAL:s", "__GLOBAL", ":.web:__EMPTY", "*"],
)
def test_what_is_no_subject_is_refused(subject: str) -> None:
    with refused(42208):
        register(State(), subject, PLAIN)
