"""What requests change: each decision gives the records to append, and the answer that holds once they stand there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.registry import errors as codes
from headwater.registry.errors import RegistryError, SchemaError, subject_not_found, version_not_found
from headwater.registry.formats import Parsed, Resolved, parse
from headwater.registry.records import (
    ConfigKey,
    ConfigValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    ModeValue,
    Record,
    Reference,
    SchemaKey,
    SchemaText,
    SchemaValue,
)
from headwater.registry.state import State

LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),
)
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL, DEFAULT_MODE = "BACKWARD", "READWRITE"
LATEST = ("latest", "-1")
LEVEL = "compatibilityLevel"
_HIGHEST_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Change:
    """What a request changes.

    Attributes:
        records: To be appended, in this order, or none of them.
        answer: What is answered once they are.
    """

    records: tuple[Record, ...]
    answer: Any


# -- schemas


def parsed(state: State, schema: SchemaText) -> Parsed:
    """The schema, with those that it uses.

    Raises:
        RegistryError: It is none of its format, or one that it uses is missing.
    """
    try:
        return parse(schema.kind, schema.text, list(_used(state, schema.references, [])))
    except SchemaError as error:
        raise RegistryError(codes.INVALID_SCHEMA, f"Invalid schema of type {schema.kind}: {error}") from error


def register(
    state: State,
    subject: str,
    schema: SchemaText,
    *,
    import_id: int | None = None,
    import_version: int | None = None,
) -> Change:
    """Registers a schema as a new version of a subject, or finds the version that it is already.

    Args:
        state: The registry's content.
        subject: The subject.
        schema: The schema, as it was sent.
        import_id: The id that it has in another registry; only in mode IMPORT.
        import_version: The version that it has there.

    Raises:
        RegistryError: It is no schema, not compatible, or the mode does not allow it.
    """
    _check_subject(subject)
    mode = mode_of(state, subject)
    compiled = parsed(state, schema)
    stored = _canonical(schema, compiled)
    live = state.live(subject)
    if mode == "IMPORT":
        return _imported(state, subject, stored, import_id, import_version)
    if import_id is not None and import_id >= 0:
        raise _not_permitted(f"Subject {subject} is not in import mode, so an id cannot be given")
    existing = _same(state, live, stored)
    if existing is not None:
        return Change((), existing)
    if mode != "READWRITE":
        raise _not_permitted(f"Subject {subject} is in read-only mode")
    reasons = _incompatibilities(state, compiled, live, level_of(state, subject))
    if reasons:
        raise RegistryError(
            codes.INCOMPATIBLE,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{"; ".join(reasons)}]',
        )
    before = state.all(subject)
    known = state.id_of(stored, subject)
    value = SchemaValue(
        subject=subject,
        version=before[-1].version + 1 if before else 1,
        id=state.next_id(subject) if known is None else known,
        schema=stored,
    )
    return Change((_schema_record(value),), value)


def lookup(state: State, subject: str, schema: SchemaText, *, deleted: bool = False) -> SchemaValue:
    """The version of a subject that a schema is.

    Raises:
        RegistryError: There is none.
    """
    versions = state.all(subject) if deleted else state.live(subject)
    if not versions:
        raise subject_not_found(subject)
    stored = _canonical(schema, parsed(state, schema))
    existing = _same(state, versions, stored)
    if existing is not None:
        return existing
    raise RegistryError(codes.SCHEMA_NOT_FOUND, "Schema not found")


def version(state: State, subject: str, number: str, *, deleted: bool = False) -> SchemaValue:
    """A version of a subject by its number, or `latest`.

    Raises:
        RegistryError: There is none.
    """
    wanted = _version_number(number)
    if not (state.all(subject) if deleted else state.live(subject)):
        raise subject_not_found(subject)
    versions = state.all(subject) if deleted else state.live(subject)
    if wanted is None:
        return versions[-1]
    for each in versions:
        if each.version == wanted:
            return each
    raise version_not_found(number)


def check(state: State, subject: str, schema: SchemaText, number: str | None = None) -> list[str]:
    """Why a schema could not become the next version; empty if it could.

    Args:
        state: The registry's content.
        subject: The subject; one that does not exist takes any schema.
        schema: The schema, as it was sent.
        number: Compare with this version only, not with those that the subject's level asks for.

    Raises:
        RegistryError: It is no schema, or there is no such version.
    """
    compiled = parsed(state, schema)
    level = level_of(state, subject)
    if number is None:
        return _incompatibilities(state, compiled, state.live(subject), level)
    if _version_number(number) is None and not state.live(subject):
        return []
    return _incompatibilities(state, compiled, [version(state, subject, number)], level)


def delete_version(state: State, subject: str, number: str, *, permanent: bool) -> Change:
    """Deletes a version softly, or for good one that is deleted softly.

    Raises:
        RegistryError: There is none, it is used, or it must be deleted softly first.
    """
    _check_writable(state, subject)
    if not state.all(subject):
        raise subject_not_found(subject)
    each = (
        version(state, subject, number, deleted=True) if permanent else _live_version(state, subject, number)
    )
    _check_unused(state, each, deleted=permanent)
    if not permanent:
        is_last = len(state.live(subject)) == 1
        settings = _settings_taken_back(state, subject) if is_last else []
        return Change((_schema_record(each, deleted=True), *settings), each.version)
    if not each.deleted:
        raise RegistryError(
            codes.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {each.version} was not deleted first before being permanently deleted",
        )
    key = SchemaKey(subject=subject, version=each.version)
    return Change((Record(key=key, value=None),), each.version)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Change:
    """Deletes all versions of a subject softly, or for good one that is deleted softly.

    Raises:
        RegistryError: There is none, one of its versions is used, or it must be deleted softly first.
    """
    _check_writable(state, subject)
    versions, live = state.all(subject), state.live(subject)
    if not versions:
        raise subject_not_found(subject)
    numbers = [each.version for each in versions]
    if permanent:
        if live:
            raise RegistryError(
                codes.SUBJECT_NOT_SOFT_DELETED,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        for each in versions:
            _check_unused(state, each, deleted=True)
        tombstones = [Record(key=SchemaKey(subject=subject, version=each), value=None) for each in numbers]
        return Change((*tombstones, Record(key=DeleteSubjectKey(subject=subject), value=None)), numbers)
    if not live:
        raise RegistryError(
            codes.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    for each in live:
        _check_unused(state, each)
    record = Record(key=DeleteSubjectKey(subject=subject), value=DeleteSubjectValue(version=live[-1].version))
    return Change((record, *_settings_taken_back(state, subject)), [each.version for each in live])


# -- configurations and modes


def level_of(state: State, subject: str | None) -> str:
    """The compatibility level that holds for a subject."""
    own = state.configs.get(subject, {}).get(LEVEL)
    return str(own or state.configs.get(None, {}).get(LEVEL) or DEFAULT_LEVEL)


def mode_of(state: State, subject: str | None) -> str:
    """The mode that holds for a subject."""
    everywhere = state.modes.get(None, DEFAULT_MODE)
    return everywhere if everywhere == "READONLY_OVERRIDE" else state.modes.get(subject, everywhere)


def set_config(state: State, subject: str | None, fields: Mapping[str, Any]) -> Change:
    """Sets a subject's configuration, or that of all subjects.

    Raises:
        RegistryError: There is no such level, or the mode does not allow it.
    """
    sent = {name: each for name, each in fields.items() if each is not None}
    if "compatibility" in sent:
        sent[LEVEL] = sent.pop("compatibility")
    if LEVEL in sent:
        sent[LEVEL] = str(sent[LEVEL]).upper()
    if sent.get(LEVEL, DEFAULT_LEVEL) not in LEVELS:
        raise RegistryError(
            codes.INVALID_LEVEL,
            f"Invalid compatibility level {sent[LEVEL]}. Valid values are {', '.join(LEVELS)}",
        )
    _check_writable(state, subject)
    merged = {**state.configs.get(subject, {}), **sent}
    return Change((Record(key=ConfigKey(subject=subject), value=ConfigValue(fields=merged)),), fields)


def delete_config(state: State, subject: str | None) -> Change:
    """Takes a configuration back.

    Raises:
        RegistryError: There is none, or the mode does not allow it.
    """
    _check_writable(state, subject)
    before = state.configs.get(subject)
    if before is None and subject is not None:
        raise no_config(subject)
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
        existing = sorted({each.subject for each in state if subject is None or each.subject == subject})
        if existing:
            raise _not_permitted(
                f"Cannot import since found existing subjects: {', '.join(existing[:5])}; delete them, or give force"
            )
    return Change((Record(key=ModeKey(subject=subject), value=ModeValue(mode=wanted)),), wanted)


def delete_mode(state: State, subject: str) -> Change:
    """Takes a subject's mode back.

    Raises:
        RegistryError: It has none.
    """
    before = state.modes.get(subject)
    if before is None:
        raise RegistryError(
            codes.NO_SUBJECT_MODE, f"Subject '{subject}' does not have subject-level mode configured"
        )
    return Change((Record(key=ModeKey(subject=subject), value=None),), before)


def no_config(subject: str) -> RegistryError:
    """The subject has no configuration of its own."""
    return RegistryError(
        codes.NO_SUBJECT_CONFIG, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


# -- inside


def _used(state: State, references: Sequence[Reference], above: list[tuple[str, int]]) -> Iterator[Resolved]:
    """The schemas behind references, each after those that it uses itself, and once."""
    seen: set[str] = set()
    for each in references:
        place = (each.subject, each.version)
        value = state.subjects.get(each.subject, {}).get(each.version)
        if value is None and each.version == -1 and state.live(each.subject):
            value = state.live(each.subject)[-1]
        if value is None or place in above:
            raise RegistryError(
                codes.INVALID_SCHEMA,
                f"Invalid schema: it uses {each.name}, which is to be version {each.version} of subject "
                f"{each.subject}, and there is none: register that first",
            )
        for inner in _used(state, value.schema.references, [*above, place]):
            if inner.name not in seen:
                seen.add(inner.name)
                yield inner
        if each.name not in seen:
            seen.add(each.name)
            yield Resolved(each.name, value.schema.text)


def _incompatibilities(state: State, new: Parsed, versions: Sequence[SchemaValue], level: str) -> list[str]:
    if level == "NONE":
        return []
    compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    for each in reversed(compared):
        old = parsed(state, each.schema)
        reasons = []
        if level.startswith(("BACKWARD", "FULL")):
            reasons += [
                f"the new schema cannot read version {each.version}: {why}" for why in new.unreadable(old)
            ]
        if level.startswith(("FORWARD", "FULL")):
            reasons += [
                f"version {each.version} cannot read the new schema: {why}" for why in old.unreadable(new)
            ]
        if reasons:
            return [*reasons, f"compatibility is {level}"]
    return []


def _imported(
    state: State, subject: str, schema: SchemaText, schema_id: int | None, number: int | None
) -> Change:
    if schema_id is None or schema_id < 0:
        raise _not_permitted(f"Subject {subject} is in import mode, so an id must be given")
    other = state.by_id(schema_id, subject)
    if other is not None and other.schema.identity != schema.identity:
        raise _not_permitted(
            f"Overwrite new schema with id {schema_id} is not permitted: it is version {other.version} of "
            f"{other.subject}"
        )
    versions = state.all(subject)
    if number is None or number <= 0:
        for each in versions:
            if each.id == schema_id and not each.deleted:
                return Change((), each)
        number = versions[-1].version + 1 if versions else 1
    value = SchemaValue(subject=subject, version=number, id=schema_id, schema=schema)
    return Change((_schema_record(value),), value)


def _same(state: State, versions: Sequence[SchemaValue], stored: SchemaText) -> SchemaValue | None:
    """The newest version that is the same schema."""
    for each in reversed(versions):
        if each.schema.identity == stored.identity:
            return each
    # Another registry may have stored it in another layout.
    for each in reversed(versions):
        try:
            written = _canonical(each.schema, parsed(state, each.schema))
        except RegistryError:
            continue
        if written.identity == stored.identity:
            return each
    return None


def _canonical(schema: SchemaText, compiled: Parsed) -> SchemaText:
    return SchemaText(
        text=compiled.canonical, kind=schema.kind, references=schema.references, extra=schema.extra
    )


def _schema_record(value: SchemaValue, *, deleted: bool = False) -> Record:
    stored = SchemaValue(
        subject=value.subject,
        version=value.version,
        id=value.id,
        schema=value.schema,
        deleted=deleted,
        unknown=value.unknown,
    )
    return Record(key=SchemaKey(subject=value.subject, version=value.version), value=stored)


def _live_version(state: State, subject: str, number: str) -> SchemaValue:
    wanted = _version_number(number)
    if any(each.version == wanted and each.deleted for each in state.all(subject)):
        raise RegistryError(
            codes.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {wanted} was soft deleted. Set permanent=true to delete permanently",
        )
    return version(state, subject, number)


def _settings_taken_back(state: State, subject: str) -> list[Record]:
    """A subject that begins anew begins with the configuration and the mode of all."""
    keys: list[ConfigKey | ModeKey] = []
    if subject in state.configs:
        keys.append(ConfigKey(subject=subject))
    if subject in state.modes:
        keys.append(ModeKey(subject=subject))
    return [Record(key=key, value=None) for key in keys]


def _check_unused(state: State, each: SchemaValue, *, deleted: bool = False) -> None:
    users = state.referenced_by(each.subject, each.version, deleted=deleted)
    if users:
        named = ", ".join(f"{user.subject} version {user.version}" for user in users[:5])
        raise RegistryError(
            codes.REFERENCE_EXISTS,
            f"One or more references exist to the schema {each.subject} version {each.version}: {named}",
        )


def _check_writable(state: State, subject: str | None) -> None:
    if mode_of(state, subject).startswith("READONLY"):
        where = "the registry" if subject is None else f"Subject {subject}"
        raise _not_permitted(f"{where} is in read-only mode")


def _check_subject(subject: str) -> None:
    # Control characters would stand in keys, and in the terminal of whoever lists the subjects.
    if (
        not subject
        or subject != subject.strip()
        or any(ord(each) < 32 or ord(each) == 127 for each in subject)
    ):
        raise RegistryError(
            codes.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject"
        )


def _not_permitted(message: str) -> RegistryError:
    return RegistryError(codes.NOT_PERMITTED, message)


def _version_number(text: str) -> int | None:
    """The number that a request names; None for the newest.

    Raises:
        RegistryError: It is no version.
    """
    if text in LATEST:
        return None
    if text.isascii() and text.isdigit() and 1 <= int(text) <= _HIGHEST_VERSION:
        return int(text)
    raise RegistryError(
        codes.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )
