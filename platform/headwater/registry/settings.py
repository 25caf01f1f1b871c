"""Configurations and modes: what holds for a subject, and what changes them."""

from collections.abc import Mapping
from typing import Any

from headwater.registry import errors as codes
from headwater.registry import subjects
from headwater.registry.change import Change
from headwater.registry.errors import RegistryError, not_permitted, subject_not_found
from headwater.registry.records import (
    ConfigKey,
    ConfigValue,
    ContextKey,
    ModeKey,
    ModeValue,
    Record,
    contract_of,
)
from headwater.registry.state import State

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_FLAGS = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
_TEXTS = ("alias", "aliasForDeks", "compatibilityGroup", "compatibilityPolicy")
DEFAULT_LEVEL, DEFAULT_MODE = "BACKWARD", "READWRITE"
LEVEL = "compatibilityLevel"


def config_of(state: State, subject: str | None) -> dict[str, Any]:
    """The configuration that holds for a subject: what stands nearer goes before."""
    merged: dict[str, Any] = {}
    for scope in reversed(subjects.scopes_of(subject)):
        merged |= state.configs.get(scope, {})
    return merged


def level_of(state: State, subject: str | None) -> str:
    """The compatibility level that holds for a subject."""
    return str(config_of(state, subject).get(LEVEL) or DEFAULT_LEVEL)


def alias_of(state: State, subject: str) -> str:
    """The subject that is meant by one whose configuration names another one for it."""
    alias = state.configs.get(subject, {}).get("alias")
    return subjects.beside(subject, str(alias)) if alias else subject


def aliases_within(state: State, prefix: str) -> dict[str, list[str]]:
    """The aliases that begin with a prefix, by the subjects that they stand for."""
    found: dict[str, list[str]] = {}
    for each in sorted(name for name in state.configs if name and subjects.begins_with(name, prefix)):
        subject = alias_of(state, each)
        if subject != each:
            found.setdefault(subject, []).append(each)
    return found


def mode_of(state: State, subject: str | None) -> str:
    """The mode that holds for a subject."""
    if state.modes.get(None) == "READONLY_OVERRIDE":
        return "READONLY_OVERRIDE"
    return next(
        (state.modes[each] for each in subjects.scopes_of(subject) if each in state.modes), DEFAULT_MODE
    )


def set_config(state: State, subject: str | None, fields: Mapping[str, Any]) -> Change:
    """Sets a subject's configuration, or that of all subjects.

    Raises:
        RegistryError: There is no such level, or the mode does not allow it.
    """
    sent = {name: _value_of(name, value) for name, value in fields.items()}
    if "compatibility" in sent:
        sent[LEVEL] = sent.pop("compatibility")
    if sent.get(LEVEL) is not None:
        sent[LEVEL] = str(sent[LEVEL]).upper()
    if sent.get(LEVEL) not in (None, *LEVELS):
        raise RegistryError(
            codes.INVALID_LEVEL,
            f"Invalid compatibility level {sent[LEVEL]}. Valid values are {', '.join(LEVELS)}",
        )
    _check_config(sent)
    check_writable(state, subject)
    # What is null is taken back.
    merged = {k: v for k, v in {**state.configs.get(subject, {}), **sent}.items() if v is not None}
    answer = {"compatibility" if name == LEVEL else name: value for name, value in merged.items()}
    return Change((Record(key=ConfigKey(subject=subject), value=ConfigValue(fields=merged)),), answer)


def delete_config(state: State, subject: str | None) -> Change:
    """Takes a configuration back.

    Raises:
        RegistryError: There is none, or the mode does not allow it.
    """
    check_writable(state, subject)
    before = state.configs.get(subject)
    if before is None and subject is not None:
        raise subject_not_found(subject)
    return Change((Record(key=ConfigKey(subject=subject), value=None),), before or {LEVEL: DEFAULT_LEVEL})


def set_mode(state: State, subject: str | None, mode: str, *, force: bool = False) -> Change:
    """Sets a subject's mode, or that of all subjects.

    Raises:
        RegistryError: There is no such mode, or schemas that exist do not allow it.
    """
    wanted = mode.upper()
    if wanted not in MODES:
        raise RegistryError(codes.INVALID_MODE, f"Invalid mode {mode}. Valid values are {', '.join(MODES)}")
    if wanted == "IMPORT" and not force and mode_of(state, subject) != "IMPORT":
        existing = sorted({each.subject for each in state if subjects.is_in(each.subject, subject)})
        if existing:
            raise not_permitted(
                f"Cannot import since found existing subjects: {', '.join(existing[:5])}; delete them for good "
                "(permanent), or give force"
            )
    return Change((Record(key=ModeKey(subject=subject), value=ModeValue(mode=wanted)),), wanted)


def delete_mode(state: State, subject: str | None, *, recursive: bool = False) -> Change:
    """Takes a mode back.

    Args:
        state: The registry's content.
        subject: The subject; of a context, or of None, the mode that holds for its subjects.
        recursive: Those of all subjects of the context, too.

    Raises:
        RegistryError: The subject has none.
    """
    before = state.modes.get(subject)
    if before is None and subject is not None and not recursive:
        raise subject_not_found(subject)
    context, name = subjects.parts_of(subject)
    inside = [
        each for each in state.modes if each and subjects.context_of(each) == context and each != subject
    ]
    keys = [subject, *(inside if recursive and not name else ())]
    answer = before or (DEFAULT_MODE if subject is None else None)
    return Change(tuple(Record(key=ModeKey(subject=each), value=None) for each in keys), answer)


def delete_context(state: State, context: str) -> Change:
    """Forgets a context that has no subjects.

    Raises:
        RegistryError: It has some, or there is no such context.
    """
    name = subjects.prefix_of(context)
    if context not in state.all_contexts()[1:]:
        raise subject_not_found(name or context)
    if any(subjects.context_of(each) == context for each in state.subjects):
        raise RegistryError(
            codes.CONTEXT_NOT_EMPTY,
            f"The specified context '{context}' is not empty: delete its subjects for good (permanent)",
        )
    return Change((Record(key=ContextKey(context=context), value=None),), None)


def no_config(subject: str) -> RegistryError:
    """The subject has no configuration of its own."""
    return RegistryError(
        codes.NO_SUBJECT_CONFIG, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def check_writable(state: State, subject: str | None) -> None:
    """Makes sure that a subject may be changed.

    Raises:
        RegistryError: Its mode does not allow it.
    """
    if mode_of(state, subject).startswith("READONLY"):
        where = "the registry" if subject is None else f"Subject {subject}"
        raise not_permitted(f"{where} is in read-only mode")


def _value_of(name: str, value: Any) -> Any:
    """A member of a configuration as Confluent's registry reads it, which takes a text for `true` and `false`, too.

    Raises:
        RegistryError: It is none; that one could not read the record.
    """
    if name in _FLAGS and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    kind = bool if name in _FLAGS else str if name in _TEXTS else object
    if value is not None and not isinstance(value, kind):
        raise RegistryError(400, f"{name} is to be {'true or false' if kind is bool else 'a text'}")
    return value


def _check_config(sent: Mapping[str, Any]) -> None:
    """Refuses what this registry would not act on, so that nobody relies on it.

    Raises:
        RegistryError: It asks for that, or is not of the form.
    """
    for name in ("validateFields", "validateRules"):
        if sent.get(name):
            raise not_permitted(f"this registry does not check what {name} asks for: leave it out")
    if str(sent.get("compatibilityPolicy") or "STRICT").upper() != "STRICT":
        raise not_permitted("this registry has no compatibilityPolicy but STRICT")
    try:
        for name in ("default", "override"):
            contract_of({"metadata": sent.get(f"{name}Metadata"), "ruleSet": sent.get(f"{name}RuleSet")})
    except ValueError as error:
        raise RegistryError(codes.INVALID_SCHEMA, f"of the configuration: {error}") from error
