"""What requests change of schemas: each decision gives the records to append, and the answer once they stand there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.registry import contracts, subjects
from headwater.registry import errors as codes
from headwater.registry.change import Change
from headwater.registry.errors import (
    RegistryError,
    SchemaError,
    not_permitted,
    subject_not_found,
    version_not_found,
)
from headwater.registry.formats import Parsed, Resolved, parse
from headwater.registry.records import (
    ConfigKey,
    ContextKey,
    ContextValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    Record,
    Reference,
    SchemaKey,
    SchemaText,
    SchemaValue,
)
from headwater.registry.settings import check_writable, config_of, level_of, mode_of
from headwater.registry.state import State

LATEST = ("latest", "-1")
_HIGHEST_VERSION = 2**31 - 1
_MOST_DIGITS = len(str(_HIGHEST_VERSION))  # of thousands of digits Python makes no number


def parsed(state: State, subject: str, schema: SchemaText) -> Parsed:
    """A schema of a subject, with those that it uses.

    Raises:
        RegistryError: It is none of its format, or one that it uses is missing.
    """
    try:
        return parse(schema.kind, schema.text, list(_used(state, subject, schema.references)))
    except SchemaError as error:
        raise RegistryError(codes.INVALID_SCHEMA, f"Invalid schema of type {schema.kind}: {error}") from error


def new(state: State, subject: str, schema: SchemaText) -> Parsed:
    """A schema that is to become a version.

    Raises:
        RegistryError: As of `parsed`; or it has what readers could not do with.
    """
    compiled = parsed(state, subject, schema)
    faults = compiled.faults()
    if faults:
        raise RegistryError(
            codes.INVALID_SCHEMA, f"Invalid schema of type {schema.kind}: {'; '.join(faults)}"
        )
    return compiled


def register(
    state: State,
    subject: str,
    schema: SchemaText,
    *,
    import_id: int | None = None,
    version: int | None = None,
    normalize: bool = False,
    force: bool = False,
) -> Change:
    """Registers a schema as a new version of a subject, or finds the version that it is already.

    Without a text it is that of the version before, with other metadata or rules.

    Args:
        state: The registry's content.
        subject: The subject.
        schema: The schema, as it was sent.
        import_id: The id that it has in another registry; only in mode IMPORT.
        version: The number that it is to have, which is the next one except in mode IMPORT, and which makes a new
            version of any schema; -1 makes one unless it is that of the newest version. Both stand in its metadata.
        normalize: Whether it is stored without what may be ordered otherwise in the same schema, as keys of JSON.
        force: Whether it need not be compatible.

    Raises:
        RegistryError: It is no schema, not compatible, or the mode does not allow it.
    """
    if not subjects.is_valid(subject):
        raise RegistryError(
            codes.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject"
        )
    mode, config = mode_of(state, subject), config_of(state, subject)
    live, before = state.live(subject), state.all(subject)
    if not schema.text.strip():
        if mode == "IMPORT" or not live:
            raise RegistryError(codes.INVALID_SCHEMA, "Empty schema")
        schema = replace(live[-1].schema, contract=schema.contract)
    compiled = parsed(state, subject, schema)
    form = _form(normalize, config)
    stored = _canonical(state, subject, schema, compiled, form)
    number = before[-1].version + 1 if before else 1
    if mode == "IMPORT":
        return _imported(state, subject, stored, import_id, version)
    if import_id is not None and import_id >= 0:
        raise not_permitted(f"Subject {subject} is not in import mode, so an id cannot be given")
    asked = version or 0
    existing = _existing(state, live, stored, form=form, config=config, asked=asked)
    if existing is not None:
        return Change((), existing)
    if mode != "READWRITE":
        raise not_permitted(f"Subject {subject} is in read-only mode")
    if asked > 0 and asked != number:
        raise RegistryError(codes.INVALID_SCHEMA, f"Version {asked} is not one more than the version before")
    stored = contracts.carried_on(stored, live[-1].schema if live else None, config, number)
    if asked:
        stored = contracts.numbered(stored, number)
    new(state, subject, schema)
    level = "NONE" if force else level_of(state, subject)
    reasons = _incompatibilities(state, compiled, _of_one_group(live, stored, config), level)
    if reasons:
        raise RegistryError(
            codes.INCOMPATIBLE,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{"; ".join(reasons)}]',
        )
    known = state.id_of(stored, subject)
    value = SchemaValue(
        subject=subject,
        version=number,
        id=state.next_id(subject) if known is None else known,
        schema=stored,
    )
    return Change(_registration(state, value), value)


def lookup(
    state: State, subject: str, schema: SchemaText, *, deleted: bool = False, normalize: bool = False
) -> SchemaValue:
    """The version of a subject that a schema is.

    Raises:
        RegistryError: There is none.
    """
    versions = state.all(subject) if deleted else state.live(subject)
    if not versions:
        raise subject_not_found(subject)
    config = config_of(state, subject)
    form = _form(normalize, config)
    stored = _canonical(state, subject, schema, parsed(state, subject, schema), form)
    live = state.live(subject)
    carried = contracts.carried_on(stored, live[-1].schema if live else None, config)
    existing = _same(state, versions, stored, form) or _same(state, versions, carried, form)
    if existing is not None:
        return existing
    raise RegistryError(codes.SCHEMA_NOT_FOUND, "Schema not found")


def version(state: State, subject: str, number: str, *, deleted: bool = False) -> SchemaValue:
    """A version of a subject by its number, or `latest`, which is never a deleted one.

    Raises:
        RegistryError: There is none.
    """
    wanted = _version_number(number)
    versions, live = state.all(subject), state.live(subject)
    if not (versions if deleted else live):
        raise subject_not_found(subject)
    if wanted is None and live:
        return live[-1]
    for each in versions if deleted else live:
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
    compiled = new(state, subject, schema)
    level, config = level_of(state, subject), config_of(state, subject)
    if number is None:
        versions = state.live(subject)
    elif (wanted := _version_number(number)) is None:
        versions = state.live(subject)[-1:]
    else:
        versions = [each for each in state.live(subject) if each.version == wanted]
        if not versions:
            raise version_not_found(number)
    stored = _canonical(state, subject, schema, compiled)
    live = state.live(subject)
    stored = contracts.carried_on(stored, live[-1].schema if live else None, config)
    return _incompatibilities(state, compiled, _of_one_group(versions, stored, config), level)


def delete_version(state: State, subject: str, number: str, *, permanent: bool) -> Change:
    """Deletes a version softly, or for good one that is deleted softly.

    Raises:
        RegistryError: There is none, it is used, or it must be deleted softly first.
    """
    check_writable(state, subject)
    if not state.all(subject):
        raise subject_not_found(subject)
    each = (
        version(state, subject, number, deleted=True) if permanent else _live_version(state, subject, number)
    )
    _check_unused(state, each, deleted=permanent)
    if not permanent:
        return Change((_schema_record(each, deleted=True),), each.version)
    if not each.deleted:
        raise RegistryError(
            codes.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {each.version} was not deleted first before being permanently deleted",
        )
    key = SchemaKey(subject=subject, version=each.version)
    settings = _settings_taken_back(state, subject) if len(state.all(subject)) == 1 else []
    return Change((Record(key=key, value=None), *settings), each.version)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Change:
    """Deletes all versions of a subject softly, or for good one that is deleted softly.

    Raises:
        RegistryError: There is none, one of its versions is used, or it must be deleted softly first.
    """
    check_writable(state, subject)
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
            _check_unused(state, each, deleted=True, but=subject)
        tombstones = [Record(key=SchemaKey(subject=subject, version=each), value=None) for each in numbers]
        mark = Record(key=DeleteSubjectKey(subject=subject), value=None)
        return Change((*tombstones, mark, *_settings_taken_back(state, subject)), numbers)
    if not live:
        raise RegistryError(
            codes.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    for each in live:
        _check_unused(state, each, but=subject)
    record = Record(key=DeleteSubjectKey(subject=subject), value=DeleteSubjectValue(version=live[-1].version))
    return Change((record,), [each.version for each in live])


# -- inside


def _used(state: State, subject: str, references: Sequence[Reference]) -> Iterator[Resolved]:
    """The schemas behind a subject's references, each after those that it uses itself, and once."""
    done: set[tuple[str, tuple[str, int]]] = set()
    names: set[str] = set()

    def walk(user: str, uses: Sequence[Reference], above: tuple[tuple[str, int], ...]) -> Iterator[Resolved]:
        for each in uses:
            value = _referred(state, user, each)
            if value is None or (value.subject, value.version) in above:
                raise RegistryError(
                    codes.INVALID_SCHEMA,
                    f"Invalid schema: it uses {each.name}, which is to be version {each.version} of subject "
                    f"{each.subject}, and there is none: register that first",
                )
            place = (value.subject, value.version)
            # Several of them may use one: what is behind it is walked once, as of many such there are no end of ways.
            if (each.name, place) not in done:
                done.add((each.name, place))
                yield from walk(value.subject, value.schema.references, (*above, place))
                if each.name not in names:
                    names.add(each.name)
                    yield Resolved(each.name, value.schema.text)

    return walk(subject, references, ())


def _referred(state: State, subject: str, reference: Reference) -> SchemaValue | None:
    other = subjects.beside(subject, reference.subject)
    if reference.version == -1:
        live = state.live(other)
        return live[-1] if live else None
    return state.subjects.get(other, {}).get(reference.version)


def _of_one_group(
    versions: Sequence[SchemaValue], schema: SchemaText, config: Mapping[str, Any]
) -> list[SchemaValue]:
    """The versions that a schema is compared with: those of its compatibility group, where the subject has such."""
    group = config.get("compatibilityGroup")
    if not group:
        return [*versions]
    own = contracts.property_of(schema, str(group))
    return [each for each in versions if contracts.property_of(each.schema, str(group)) == own]


def _incompatibilities(state: State, new: Parsed, versions: Sequence[SchemaValue], level: str) -> list[str]:
    if level == "NONE":
        return []
    compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    for each in reversed(compared):
        old = parsed(state, each.subject, each.schema)
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
        # A producer that has its schemas registered by itself goes on while they are moved.
        existing = _same(state, state.live(subject), schema)
        if existing is not None:
            return Change((), existing)
        raise not_permitted(f"Subject {subject} is in import mode, so an id must be given")
    other = state.by_id(schema_id, subject)
    if other is not None and other.schema.identity != schema.identity:
        raise not_permitted(
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
    return Change(_registration(state, value), value)


def _form(normalize: bool, config: Mapping[str, Any]) -> str:
    return "normalized" if normalize or config.get("normalize") else ""


def _existing(
    state: State,
    live: Sequence[SchemaValue],
    stored: SchemaText,
    *,
    form: str,
    config: Mapping[str, Any],
    asked: int,
) -> SchemaValue | None:
    """The version that a schema is already, of those that the version in the request leaves to be that."""
    if asked > 0:
        return None
    candidates = live[-1:] if asked else live
    adds = contracts.adds_any(config)
    existing = None if adds else _same(state, candidates, stored, form)
    if existing is None and (adds or not asked):
        carried = contracts.carried_on(stored, live[-1].schema if live else None, config)
        existing = _same(state, candidates, carried, form)
    return existing


def _same(
    state: State, versions: Sequence[SchemaValue], stored: SchemaText, form: str = ""
) -> SchemaValue | None:
    """The version that is the same schema to the letter, or else the newest one that is it in the given form."""
    for each in reversed(versions):
        if each.schema.identity == stored.identity:
            return each
    for each in reversed(versions):
        wanted, before = contracts.comparable(stored, each.schema, each.version)
        if wanted.identity == before.identity:
            return each
    # Another registry may have stored it in another layout, or a serializer has put what it uses in place.
    for each in reversed(versions):
        old = each.schema
        if old.kind != stored.kind or (stored.references and old.references != stored.references):
            continue
        as_one = "resolved" if old.references and not stored.references else form
        try:
            before_text = parsed(state, each.subject, old).rendered(as_one)
            text = parsed(state, each.subject, stored).rendered(as_one)
        except RegistryError:
            continue
        same_text = replace(old, text=before_text, references=stored.references)
        wanted, before = contracts.comparable(replace(stored, text=text), same_text, each.version)
        if wanted.identity == before.identity:
            return each
    return None


def _canonical(
    state: State, subject: str, schema: SchemaText, compiled: Parsed, form: str = ""
) -> SchemaText:
    """A schema as it is stored: in one layout, and with the versions that its references mean now."""
    references = tuple(
        replace(each, version=used.version) if (used := _referred(state, subject, each)) else each
        for each in schema.references
    )
    if form:
        references = tuple(sorted(set(references), key=lambda each: (each.name, each.subject, each.version)))
    return replace(schema, text=compiled.rendered(form), references=references)


def _registration(state: State, value: SchemaValue) -> tuple[Record, ...]:
    """The records of a version, of its context where that is new, and of those deleted softly that it comes back as."""
    context = subjects.context_of(value.subject)
    is_new = context != subjects.DEFAULT_CONTEXT and context not in state.contexts
    mark = (Record(key=ContextKey(context=context), value=ContextValue()),) if is_new else ()
    replaced = [
        Record(key=SchemaKey(subject=each.subject, version=each.version), value=None)
        for each in state.all(value.subject)
        if (each.deleted and each.id == value.id and each.version < value.version)
        and not state.referenced_by(each.subject, each.version, deleted=True)
    ]
    return (*mark, *replaced, _schema_record(value))


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


def _check_unused(state: State, each: SchemaValue, *, deleted: bool = False, but: str | None = None) -> None:
    """Makes sure that no version uses one, `but` those of a subject that goes with it."""
    using = state.referenced_by(each.subject, each.version, deleted=deleted)
    users = [user for user in using if user.subject != but]
    if users:
        named = ", ".join(f"{user.subject} version {user.version}" for user in users[:5])
        raise RegistryError(
            codes.REFERENCE_EXISTS,
            f"One or more references exist to the schema {each.subject} version {each.version}: {named}",
        )


def _version_number(text: str) -> int | None:
    """The number that a request names; None for the newest.

    Raises:
        RegistryError: It is no version.
    """
    if text.strip().lower() in LATEST:
        return None
    digits = text.strip().removeprefix("+")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS:
        number = int(digits)
        if 1 <= number <= _HIGHEST_VERSION:
            return number
    raise RegistryError(
        codes.INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )
