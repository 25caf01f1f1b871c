"""Which request asks what: the paths, parameters and answers of Confluent's REST interface."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from headwater import __version__
from headwater.registry import decisions, media, settings, subjects
from headwater.registry import errors as codes
from headwater.registry.addresses import addressed, context_named
from headwater.registry.contracts import guid_of, has_rule_of, property_of
from headwater.registry.errors import RegistryError, subject_not_found
from headwater.registry.records import FORMATS, SchemaValue, schema_fields
from headwater.registry.request import Request
from headwater.registry.service import Service
from headwater.registry.settings import LEVEL
from headwater.registry.state import State

Handler = Callable[..., Any]
_HIGHEST_NUMBER = 2**31 - 1


class Text(str):
    """An answer that is a schema's text as it stands, and not JSON with that in it."""

    __slots__ = ()


def answer_of(service: Service, request: Request) -> Any:
    """What is answered, as JSON; or a `Text`, or None if that it is done is all.

    Raises:
        RegistryError: The request is refused.
    """
    request = _of_its_subject(service, addressed(request))
    found = False
    for method, pattern, handler in _ROUTES:
        arguments = _matched(pattern, request.path)
        if arguments is None:
            continue
        found = True
        if method == request.method:
            media.check(request.content_type, request.accept)
            return handler(service, request, *arguments)
    if found:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    raise RegistryError(404, "HTTP 404 Not Found")


def _of_its_subject(service: Service, request: Request) -> Request:
    """The request, of the subject that an alias in its path, or beside an id, stands for."""
    beside_id = request.text("subject")
    if request.path[:2] == ("schemas", "ids") and beside_id:
        subject = service.read(lambda state: settings.alias_of(state, beside_id))
        return replace(request, query={**request.query, "subject": (subject,)})
    place = request.subject_place
    if place is None or request.path[0] in ("config", "mode"):
        return request
    return request.with_subject(service.read(lambda state: settings.alias_of(state, request.path[place])))


def _matched(pattern: tuple[str, ...], path: tuple[str, ...]) -> list[str] | None:
    if len(pattern) != len(path):
        return None
    if any(part not in ("*", each) for part, each in zip(pattern, path, strict=True)):
        return None
    return [each for part, each in zip(pattern, path, strict=True) if part == "*"]


# -- schemas by id


def _schema_by_id(service: Service, request: Request, number: str) -> Any:
    def ask(state: State) -> dict[str, Any]:
        subject = request.text("subject")
        value = state.by_id(_id(number), subject)
        if value is None:
            raise RegistryError(codes.SCHEMA_NOT_FOUND, f"Schema {number} not found")
        place = {} if subject is None else {"subject": value.subject, "version": value.version}
        highest = {"maxId": state.next_id(value.subject) - 1} if request.flag("fetchMaxId") else {}
        return {**place, **_rendered(state, value, request), "guid": guid_of(value.schema), **highest}

    return service.read(ask, is_long=bool(request.text("format")))


def _schema_text_by_id(service: Service, request: Request, number: str) -> Text:
    return Text(_schema_by_id(service, request, number)["schema"])


def _schema_by_guid(service: Service, request: Request, guid: str) -> Any:
    def ask(state: State) -> dict[str, Any]:
        for value in state:
            if guid_of(value.schema) == guid.lower():
                return {**_rendered(state, value, request), "guid": guid}
        raise RegistryError(codes.SCHEMA_NOT_FOUND, f"Schema {guid} not found")

    return service.read(ask, is_long=True)


def _ids_of_guid(service: Service, request: Request, guid: str) -> Any:
    def ask(state: State) -> list[tuple[str, int]]:
        same = (each for each in state if guid_of(each.schema) == guid.lower())
        return sorted({(subjects.context_of(each.subject), each.id) for each in same})

    return [{"context": context, "id": number} for context, number in service.read(ask, is_long=True)]


def _uses_of_id(service: Service, request: Request, number: str) -> list[SchemaValue]:
    def ask(state: State) -> list[SchemaValue]:
        uses = state.uses_of(_id(number), request.text("subject"))
        if not uses:
            raise RegistryError(codes.SCHEMA_NOT_FOUND, f"Schema {number} not found")
        deleted = request.flag("deleted")
        return sorted(
            (each for each in uses if deleted or not each.deleted),
            key=lambda each: (each.subject, each.version),
        )

    return service.read(ask)


def _subjects_of_id(service: Service, request: Request, number: str) -> Any:
    return _page(request, sorted({each.subject for each in _uses_of_id(service, request, number)}))


def _versions_of_id(service: Service, request: Request, number: str) -> Any:
    uses = _uses_of_id(service, request, number)
    return _page(request, [{"subject": each.subject, "version": each.version} for each in uses])


def _types(service: Service, request: Request) -> Any:
    return list(FORMATS)


def _schemas(service: Service, request: Request) -> Any:
    prefix, deleted = request.text("subjectPrefix") or "", request.flag("deleted")
    rule_type = request.text("ruleType")

    def ask(state: State) -> list[dict[str, Any]]:
        aliases = settings.aliases_within(state, prefix) if request.flag("aliases") else {}
        wanted = (
            each for each in state if subjects.begins_with(each.subject, prefix) or each.subject in aliases
        )
        values = [each for each in wanted if deleted or not each.deleted]
        if request.flag("latestOnly"):
            values = list({each.subject: each for each in values}.values())
        if rule_type is not None:
            values = [each for each in values if has_rule_of(each.schema, rule_type)]
        return [
            {
                **_described(state, each, request),
                **({"aliases": aliases[each.subject]} if each.subject in aliases else {}),
            }
            for each in _page(request, values)
        ]

    return service.read(ask)


# -- subjects


def _subjects(service: Service, request: Request) -> Any:
    prefix = request.text("subjectPrefix") or ""
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")

    def ask(state: State) -> list[str]:
        names = [name for name in sorted(state.subjects) if subjects.begins_with(name, prefix)]
        if only:
            return [name for name in names if not state.live(name)]
        return [name for name in names if deleted or state.live(name)]

    return _page(request, service.read(ask))


def _versions(service: Service, request: Request, subject: str) -> Any:
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")
    negative = request.flag("deletedAsNegative")

    def ask(state: State) -> list[int]:
        versions = state.all(subject)
        if not (versions if deleted or only else state.live(subject)):
            raise subject_not_found(subject)
        if negative:
            return [-each.version if each.deleted else each.version for each in versions]
        return [each.version for each in versions if (each.deleted if only else deleted or not each.deleted)]

    return _page(request, service.read(ask))


def _register(service: Service, request: Request, subject: str) -> Any:
    schema, fields = request.schema(may_be_empty=True), request.fields
    value: SchemaValue = service.change(
        lambda state: decisions.register(
            state,
            subject,
            schema,
            import_id=_optional(fields.get("id")),
            version=_optional(fields.get("version")),
            normalize=request.flag("normalize"),
            force=request.flag("force"),
        )
    )
    # Without the text: confluent-kafka keeps what it is sent here, and its Protobuf reader cannot use the text.
    return {"id": value.id, "version": value.version, "guid": guid_of(value.schema)}


def _lookup(service: Service, request: Request, subject: str) -> Any:
    schema, deleted, normalize = request.schema(), request.flag("deleted"), request.flag("normalize")

    def ask(state: State) -> dict[str, Any]:
        refused: list[RegistryError] = []
        for name in dict.fromkeys([subject, *state.in_all_contexts(subject)]):
            try:
                value = decisions.lookup(state, name, schema, deleted=deleted, normalize=normalize)
            except RegistryError as error:  # it may use what this context does not have
                refused.append(error)
                continue
            return _described(state, value, request)
        raise refused[0]  # said of the name that was asked for

    return service.read(ask, is_long=True)


def _version(service: Service, request: Request, subject: str, number: str) -> Any:
    deleted = request.flag("deleted")

    def ask(state: State) -> dict[str, Any]:
        # A client that reads a schema of a context asks for what that uses by plain names.
        names = [each for each in state.in_all_contexts(subject) if deleted or state.live(each)]
        value = decisions.version(state, names[0] if names else subject, number, deleted=deleted)
        return _described(state, value, request)

    return service.read(ask, is_long=bool(request.text("format")))


def _version_text(service: Service, request: Request, subject: str, number: str) -> Text:
    return Text(_version(service, request, subject, number)["schema"])


def _latest_with_metadata(service: Service, request: Request, subject: str) -> Any:
    wanted = dict(zip(request.query.get("key", ()), request.query.get("value", ()), strict=False))
    deleted = request.flag("deleted")

    def ask(state: State) -> dict[str, Any]:
        versions = state.all(subject) if deleted else state.live(subject)
        for each in reversed(versions):
            known = (each.schema.contract.get("metadata") or {}).get("properties")
            if known and all(property_of(each.schema, name) == value for name, value in wanted.items()):
                return _described(state, each, request)
        if not versions:
            raise subject_not_found(subject)
        raise RegistryError(codes.SCHEMA_NOT_FOUND, "Schema not found")

    return service.read(ask)


def _referenced_by(service: Service, request: Request, subject: str, number: str) -> Any:
    def ask(state: State) -> list[int]:
        value = decisions.version(state, subject, number, deleted=True)
        users = state.referenced_by(subject, value.version, deleted=request.flag("deleted"))
        return sorted({each.id for each in users})

    return _page(request, service.read(ask))


def _delete_subject(service: Service, request: Request, subject: str) -> Any:
    permanent = request.flag("permanent")
    return service.change(lambda state: decisions.delete_subject(state, subject, permanent=permanent))


def _delete_version(service: Service, request: Request, subject: str, number: str) -> Any:
    permanent = request.flag("permanent")
    return service.change(lambda state: decisions.delete_version(state, subject, number, permanent=permanent))


# -- compatibility


def _compatible(service: Service, request: Request, subject: str, number: str | None = None) -> Any:
    schema, is_verbose = request.schema(), request.flag("verbose")
    try:
        reasons = service.read(lambda state: decisions.check(state, subject, schema, number), is_long=True)
    except RegistryError as error:
        if not is_verbose or error.code != codes.INVALID_SCHEMA:
            raise
        reasons = [error.message]
    return {"is_compatible": not reasons, **({"messages": reasons} if is_verbose else {})}


def _get_config(service: Service, request: Request, subject: str | None = None) -> Any:
    def ask(state: State) -> dict[str, Any]:
        own = dict(state.configs.get(subject, {}))
        if request.flag("defaultToGlobal"):
            own = settings.config_of(state, subject)
        elif subject is not None and not own:
            raise settings.no_config(subject)
        return {LEVEL: settings.level_of(state, subject), **own}

    return service.read(ask)


def _set_config(service: Service, request: Request, subject: str | None = None) -> Any:
    fields = request.fields
    return service.change(lambda state: settings.set_config(state, subject, fields))


def _delete_config(service: Service, request: Request, subject: str | None = None) -> Any:
    return service.change(lambda state: settings.delete_config(state, subject))


# -- modes


def _get_mode(service: Service, request: Request, subject: str | None = None) -> Any:
    def ask(state: State) -> dict[str, Any]:
        if subject is not None and subject not in state.modes and not request.flag("defaultToGlobal"):
            raise RegistryError(
                codes.NO_SUBJECT_MODE, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return {"mode": settings.mode_of(state, subject)}

    return service.read(ask)


def _set_mode(service: Service, request: Request, subject: str | None = None) -> Any:
    mode, force = str(request.fields.get("mode", "")), request.flag("force")
    return {"mode": service.change(lambda state: settings.set_mode(state, subject, mode, force=force))}


def _delete_mode(service: Service, request: Request, subject: str | None = None) -> Any:
    recursive = request.flag("recursive")
    return {"mode": service.change(lambda state: settings.delete_mode(state, subject, recursive=recursive))}


# -- the registry itself


def _contexts(service: Service, request: Request) -> Any:
    prefix = request.text("contextPrefix") or ""
    return _page(request, [each for each in service.read(State.all_contexts) if each.startswith(prefix)])


def _delete_context(service: Service, request: Request, context: str) -> None:
    service.change(lambda state: settings.delete_context(state, context_named(context)))


def _root(service: Service, request: Request) -> Any:
    return {}


def _metadata_id(service: Service, request: Request) -> Any:
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": "schema-registry"}}, "id": ""}


def _metadata_version(service: Service, request: Request) -> Any:
    return {"version": __version__, "commitId": ""}


_ROUTES: tuple[tuple[str, tuple[str, ...], Handler], ...] = tuple(
    (method, tuple(each for each in path.split("/") if each), handler)
    for method, path, handler in (
        ("GET", "/", _root),
        ("GET", "/schemas", _schemas),
        ("GET", "/schemas/types", _types),
        ("GET", "/schemas/ids/*", _schema_by_id),
        ("GET", "/schemas/ids/*/schema", _schema_text_by_id),
        ("GET", "/schemas/ids/*/subjects", _subjects_of_id),
        ("GET", "/schemas/ids/*/versions", _versions_of_id),
        ("GET", "/schemas/guids/*", _schema_by_guid),
        ("GET", "/schemas/guids/*/ids", _ids_of_guid),
        ("GET", "/subjects", _subjects),
        ("POST", "/subjects/*", _lookup),
        ("DELETE", "/subjects/*", _delete_subject),
        ("GET", "/subjects/*/versions", _versions),
        ("POST", "/subjects/*/versions", _register),
        ("GET", "/subjects/*/metadata", _latest_with_metadata),
        ("GET", "/subjects/*/versions/*", _version),
        ("DELETE", "/subjects/*/versions/*", _delete_version),
        ("GET", "/subjects/*/versions/*/schema", _version_text),
        ("GET", "/subjects/*/versions/*/referencedby", _referenced_by),
        ("POST", "/compatibility/subjects/*/versions", _compatible),
        ("POST", "/compatibility/subjects/*/versions/*", _compatible),
        ("GET", "/config", _get_config),
        ("PUT", "/config", _set_config),
        ("DELETE", "/config", _delete_config),
        ("GET", "/config/*", _get_config),
        ("PUT", "/config/*", _set_config),
        ("DELETE", "/config/*", _delete_config),
        ("GET", "/mode", _get_mode),
        ("PUT", "/mode", _set_mode),
        ("DELETE", "/mode", _delete_mode),
        ("GET", "/mode/*", _get_mode),
        ("PUT", "/mode/*", _set_mode),
        ("DELETE", "/mode/*", _delete_mode),
        ("GET", "/contexts", _contexts),
        ("DELETE", "/contexts/*", _delete_context),
        ("GET", "/v1/metadata/id", _metadata_id),
        ("GET", "/v1/metadata/version", _metadata_version),
    )
)


# -- inside


def _described(state: State, value: SchemaValue, request: Request) -> dict[str, Any]:
    return {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        "guid": guid_of(value.schema),
        "schemaType": value.schema.kind,  # clients that know the member's default only skip it
        **_rendered(state, value, request),
        **({"deleted": True} if value.deleted else {}),
    }


def _rendered(state: State, value: SchemaValue, request: Request) -> dict[str, Any]:
    fields = schema_fields(value.schema)
    if request.text("referenceFormat") == "qualified":
        for each in fields.get("references", ()):
            each["subject"] = subjects.beside(value.subject, each["subject"])
    form = request.text("format")
    if form:
        fields["schema"] = decisions.parsed(state, value.subject, value.schema).rendered(form)
    return fields


def _page(request: Request, values: Iterable[Any]) -> list[Any]:
    every = list(values)
    offset, limit = max(request.number("offset", 0), 0), request.number("limit", -1)
    return every[offset:] if limit <= 0 else every[offset : offset + limit]


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_HIGHEST_NUMBER))):
        raise RegistryError(404, f"{text} is no id of a schema")
    return int(text)


def _optional(value: Any) -> int | None:
    try:
        number = None if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        raise RegistryError(400, f"{value} is no whole number") from None
    if number is not None and abs(number) > _HIGHEST_NUMBER:
        raise RegistryError(400, f"{number} is too large: ids and versions have 32 bits")
    return number
