"""The registry's decisions, without a broker: each record is written and read again on its way into the state."""

import json
from contextlib import AbstractContextManager

import pytest

from headwater.registry import decisions
from headwater.registry.decisions import Change
from headwater.registry.errors import RegistryError
from headwater.registry.records import Reference, SchemaText, SchemaValue, decode, encode_key, encode_value
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


def register(state: State, subject: str, text: str, *references: Reference) -> SchemaValue:
    answer = carry_out(
        state, decisions.register(state, subject, SchemaText(text=text, references=references))
    )
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
        carry_out(state, decisions.set_config(state, None, {"compatibility": level}))
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
    carry_out(state, decisions.set_config(state, "s", {"compatibility": "backward_transitive"}))
    reasons = decisions.check(state, "s", SchemaText(text=text))
    assert "cannot read version 1" in reasons[0]
    with refused(409):
        register(state, "s", text)


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
    assert register(state, "s", wider(',"default":0')).version == 3
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=False)) == [1, 3]
    with refused(40404):
        decisions.delete_subject(state, "s", permanent=False)
    with refused(40401):
        decisions.version(state, "s", "latest")
    assert carry_out(state, decisions.delete_subject(state, "s", permanent=True)) == [1, 2, 3]
    assert state.by_id(1) is None
    assert register(state, "s", PLAIN).id == 3  # 1 and 2 may stand in records


@pytest.mark.parametrize("whole", [True, False])
def test_a_subject_without_versions_has_no_settings_of_its_own(whole: bool) -> None:
    state = State()
    for text in (PLAIN, wider(',"default":0')):
        register(state, "s", text)
    carry_out(state, decisions.set_config(state, "s", {"compatibility": "FULL"}))
    carry_out(state, decisions.set_mode(state, "s", "READWRITE"))
    if whole:
        change = decisions.delete_subject(state, "s", permanent=False)
        carry_out(state, change)
        # Another registry of the topic reads it of these records.
        assert [type(each.key).__name__ for each in change.records] == [
            "DeleteSubjectKey",
            "ConfigKey",
            "ModeKey",
        ]
    else:
        carry_out(state, decisions.delete_version(state, "s", "1", permanent=False))
        assert decisions.level_of(state, "s") == "FULL"
        carry_out(state, decisions.delete_version(state, "s", "2", permanent=False))
    assert (state.configs, state.modes) == ({}, {})


def test_modes_decide_who_may_register() -> None:
    state = State()
    register(state, "s", PLAIN)
    carry_out(state, decisions.set_mode(state, None, "readonly"))
    with refused(42205):
        register(state, "s", wider(',"default":0'))
    assert register(state, "s", PLAIN).version == 1  # which it is already
    carry_out(state, decisions.set_mode(state, "other", "READWRITE"))
    assert register(state, "other", wider()).id == 2
    carry_out(state, decisions.set_mode(state, None, "READONLY_OVERRIDE"))
    with refused(42205):
        register(state, "other", PLAIN)
    with refused(42204):
        decisions.set_mode(state, None, "WRITEONLY")


def test_import_keeps_the_ids_of_another_registry() -> None:
    state = State()
    with refused(42205):
        decisions.register(state, "s", SchemaText(text=PLAIN), import_id=17)
    carry_out(state, decisions.set_mode(state, "s", "IMPORT"))
    with refused(42205):
        register(state, "s", PLAIN)
    carry_out(state, decisions.register(state, "s", SchemaText(text=PLAIN), import_id=17, import_version=4))
    assert [(each.id, each.version) for each in state.live("s")] == [(17, 4)]
    with refused(42205):  # the id is another schema's
        decisions.register(state, "s", SchemaText(text=wider()), import_id=17)
    carry_out(state, decisions.set_mode(state, "s", "READWRITE"))
    assert register(state, "t", wider()).id == 18
    with refused(42205):
        decisions.set_mode(state, "t", "IMPORT")


@pytest.mark.parametrize("text", ["", "0", "-2", "1.0", "٣", "2147483648", "newest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    state = State()
    register(state, "s", PLAIN)
    with refused(42202):
        decisions.version(state, "s", text)


@pytest.mark.parametrize("subject", ["", " s", "a\nb", "\x1b[2J"])
def test_what_is_no_subject_is_refused(subject: str) -> None:
    with refused(42208):
        register(State(), subject, PLAIN)
