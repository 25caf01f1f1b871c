"""What the records of the registry's topic make together, in the order of their offsets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.registry.records import (
    ConfigKey,
    ConfigValue,
    ContextKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
    SchemaText,
    SchemaValue,
)
from headwater.registry.subjects import DEFAULT_CONTEXT, beside, context_of, parts_of, prefix_of


@dataclass
class State:
    """The registry's content.

    Attributes:
        subjects: The versions of each subject by number, with those that are deleted softly.
        configs: Configurations by subject; that of None holds for all.
        modes: Modes by subject; that of None holds for all.
        contexts: Those that have a record.
    """

    subjects: dict[str, dict[int, SchemaValue]] = field(default_factory=dict)
    configs: dict[str | None, Mapping[str, Any]] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    contexts: set[str] = field(default_factory=set)
    _places: dict[tuple[str, int], list[SchemaKey]] = field(default_factory=dict)
    _ids: dict[tuple[str, str], int] = field(default_factory=dict)
    _highest: dict[str, int] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Takes the next record of the topic in."""
        key, value = record.key, record.value
        if isinstance(key, SchemaKey):
            self._forget(key)
            if isinstance(value, SchemaValue):
                self._remember(key, value)
        elif isinstance(key, ConfigKey):
            _put(self.configs, key.subject, value.fields if isinstance(value, ConfigValue) else None)
        elif isinstance(key, ModeKey):
            _put(self.modes, key.subject, value.mode if isinstance(value, ModeValue) else None)
        elif isinstance(key, ContextKey):
            (self.contexts.discard if value is None else self.contexts.add)(key.context)
        elif isinstance(key, DeleteSubjectKey) and isinstance(value, DeleteSubjectValue):
            self._delete_softly(key.subject, value.version)

    def live(self, subject: str) -> list[SchemaValue]:
        """The versions of a subject that are not deleted, oldest first."""
        return [each for each in self.all(subject) if not each.deleted]

    def all(self, subject: str) -> list[SchemaValue]:
        """The versions of a subject with those that are deleted softly, oldest first."""
        return [each for _, each in sorted(self.subjects.get(subject, {}).items())]

    def by_id(self, number: int, subject: str | None = None) -> SchemaValue | None:
        """A version that has the id, in the context of the subject."""
        places = self._places_of(number, subject)
        return self._at(places[0]) if places else None

    def uses_of(self, number: int, subject: str | None = None) -> list[SchemaValue]:
        """All versions that have the id, in the context of the subject."""
        return [self._at(each) for each in self._places_of(number, subject)]

    def id_of(self, schema: SchemaText, subject: str) -> int | None:
        """The id that a schema has already in the context of the subject."""
        return self._ids.get((context_of(subject), schema.identity))

    def next_id(self, subject: str) -> int:
        """The next free id of the subject's context."""
        return self._highest.get(context_of(subject), 0) + 1

    def referenced_by(self, subject: str, version: int, *, deleted: bool = False) -> list[SchemaValue]:
        """The versions that use one of a subject."""
        live = self.live(subject)
        # Older registries kept that a schema uses the newest version, whichever that is.
        numbers = (version, -1) if live and live[-1].version == version else (version,)
        return [
            each
            for each in self
            if (deleted or not each.deleted)
            and any(
                used.version in numbers and beside(each.subject, used.subject) == subject
                for used in each.schema.references
            )
        ]

    def copy(self) -> "State":
        """One that what is applied to this one does not change; schemas are shared, as they never change."""
        return State(
            {subject: dict(versions) for subject, versions in self.subjects.items()},
            dict(self.configs),
            dict(self.modes),
            set(self.contexts),
            {place: list(keys) for place, keys in self._places.items()},
            dict(self._ids),
            dict(self._highest),
        )

    def all_contexts(self) -> list[str]:
        """The contexts that have a record or a subject, the default one first."""
        others = self.contexts | {context_of(subject) for subject in self.subjects}
        return [DEFAULT_CONTEXT, *sorted(others - {DEFAULT_CONTEXT})]

    def in_all_contexts(self, subject: str) -> list[str]:
        """The subjects that one may be: itself, and, if its name says no context, those of its name in the others."""
        context, name = parts_of(subject)
        others = self.all_contexts()[1:] if context == DEFAULT_CONTEXT and name else []
        names = (subject, *(prefix_of(each) + name for each in others))
        return [each for each in names if each in self.subjects]

    def __iter__(self) -> Iterator[SchemaValue]:
        for subject in sorted(self.subjects):
            yield from self.all(subject)

    def _places_of(self, number: int, subject: str | None) -> list[SchemaKey]:
        """Where an id is used: for a subject without a context that does not have it, by its name in another one."""
        context, name = parts_of(subject)
        own = self._places.get((context, number), [])
        if context != DEFAULT_CONTEXT or not name or any(each.subject == name for each in own):
            return own
        for other in self.all_contexts()[1:]:
            places = self._places.get((other, number), [])
            if any(each.subject == prefix_of(other) + name for each in places):
                return places
        return own

    def _at(self, key: SchemaKey) -> SchemaValue:
        return self.subjects[key.subject][key.version]

    def _remember(self, key: SchemaKey, value: SchemaValue) -> None:
        context = context_of(key.subject)
        self.subjects.setdefault(key.subject, {})[key.version] = value
        self._places.setdefault((context, value.id), []).append(key)
        self._ids.setdefault((context, value.schema.identity), value.id)
        self._highest[context] = max(self._highest.get(context, 0), value.id)

    def _forget(self, key: SchemaKey) -> None:
        before = self.subjects.get(key.subject, {}).pop(key.version, None)
        if before is None:
            return
        if not self.subjects[key.subject]:
            del self.subjects[key.subject]
        context = context_of(key.subject)
        places = self._places[context, before.id]
        places.remove(key)
        if not places:
            del self._places[context, before.id]
            # The id itself is not given again: records with it may be in topics.
            if self._ids.get((context, before.schema.identity)) == before.id:
                del self._ids[context, before.schema.identity]

    def _delete_softly(self, subject: str, up_to: int) -> None:
        versions = self.subjects.get(subject, {})
        for number, each in versions.items():
            if number <= up_to and not each.deleted:
                versions[number] = replace(each, deleted=True)


def _put(where: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value
