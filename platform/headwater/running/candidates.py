"""Jobs as if a schema that is not registered yet were the newest of its subject: what it changes before it arrives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.registry.files import read_schema
from headwater_streams.plan.job import Job
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.registered import Registered
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError

_VERSION = "candidate"
Ask = Callable[..., Any]
Schemas = Mapping[str, Mapping[str, Any]]


def read_candidates(texts: Sequence[str], jobs: Sequence[Job]) -> Schemas:
    """Schemas in files, by the subjects that they are to be of.

    Args:
        texts: `SUBJECT=FILE` each.
        jobs: The jobs, one of which reads each subject.

    Raises:
        UsageError: A text is not of that form, its file cannot be read, or no job reads the subject.
    """
    read = sorted({form.subject for job in jobs for form in _registered_of(job)})
    schemas = {}
    for each in texts:
        subject, _, file = each.partition("=")
        if not (subject and file):
            raise UsageError(f"--schema {each} is not of the form SUBJECT=FILE")
        if subject not in read:
            named = f"they read {', '.join(read)}" if read else "none has registry=True"
            raise UsageError(f"--schema {subject}: no job reads that subject; {named}")
        schemas[subject] = read_schema(Path(file))
    return schemas


def with_candidates(jobs: Sequence[Job], schemas: Schemas) -> list[Job]:
    """The jobs, as if each schema were the newest version of its subject."""
    return [
        replace(job, inputs={name: _as_if(each, schemas) for name, each in job.inputs.items()})
        for job in jobs
    ]


def refusals(jobs: Sequence[Job], schemas: Schemas) -> list[str]:
    """Why the registry would not take a schema as the next version, a sentence for each that it would not."""
    sentences = []
    for form in {form.subject: form for job in jobs for form in _registered_of(job)}.values():
        if form.subject not in schemas:
            continue
        place = ("compatibility", "subjects", form.subject, "versions")
        try:
            answer = form.asking("POST", *place, body=schemas[form.subject], verbose=True)
        except (RefusedByRegistryError, NoRegistryError) as error:
            sentences.append(f"--schema {form.subject}: {error}")
            continue
        if not answer["is_compatible"]:
            why = "; ".join(answer.get("messages") or ["it is not compatible"])
            sentences.append(f"--schema {form.subject}: the registry would refuse it: {why}")
    return sentences


def _registered_of(job: Job) -> list[Registered]:
    return [form for form in map(_registered, job.topics) if form is not None]


def _registered(declared: object) -> Registered | None:
    form = declared.format if isinstance(declared, TopicInput) else None
    return form if isinstance(form, Registered) else None


def _as_if(declared: Any, schemas: Mapping[str, Mapping[str, Any]]) -> Any:
    form = _registered(declared)
    if form is None or form.subject not in schemas:
        return declared
    ask = partial(_answer, form.asking, form.subject, schemas[form.subject])
    return replace(declared, format=replace(form, ask=ask))


def _answer(
    ask: Ask, subject: str, schema: Mapping[str, Any], method: str, /, *path: str, **query: Any
) -> Any:
    """What a registry would answer if the schema were the newest version of the subject."""
    place = ("subjects", subject, "versions")
    if path == (*place, "latest"):
        return {**schema, "version": _VERSION, "id": _VERSION}
    if path == (*place, _VERSION):
        return {**schema, "schema": _serialized(ask, schema)}
    return ask(method, *path, **query)


def _serialized(ask: Ask, schema: Mapping[str, Any]) -> str:
    """A Protobuf schema in the binary form that a registry gives."""
    from headwater.registry.errors import SchemaError
    from headwater.registry.formats import Resolved, parse

    def used(one: Mapping[str, Any]) -> list[Resolved]:
        found = []
        for each in one.get("references") or ():
            other = ask("GET", "subjects", each["subject"], "versions", str(each["version"]), deleted=True)
            found += [*used(other), Resolved(each["name"], other["schema"])]
        return list({each.name: each for each in found}.values())

    try:
        return parse("PROTOBUF", schema["schema"], used(schema)).rendered("serialized")
    except SchemaError as error:
        raise UsageError(f"the schema of --schema is not Protobuf: {error}") from error
