"""Our events of OpenLineage, read by its own client's classes, which are made of the specification's schemas.

They know each key, and say which version of each facet's schema is the newest.
"""

import inspect
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attr
import pytest
from openlineage.client import facet_v2
from openlineage.client.generated import base

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.base.made_of import CHOSEN
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.openlineage import Assertion, Event, Place, events_of, runs_of

TABLE = "gold.delays"
_KINDS: list[Any] = [
    kind
    for module in vars(facet_v2).values()
    if inspect.ismodule(module)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, base.BaseFacet)
]
FACETS = {kind._get_schema(): kind for kind in _KINDS}


def events() -> list[Event]:
    """Events with all that they may have: topics of two clusters, tables, a look-up, checks, columns."""
    sources = (
        SourceRange(input="flights", topic="flights", ranges={"flights": {0: (0, 7), 1: (3, 4)}}),
        SourceRange(input="far", topic="eu:flights", ranges={"eu:flights": {0: (0, 9)}}),
        SourceRange(input="rows", table="silver.rows", versions=(3, 6), ranges={"flights": {0: (0, 7)}}),
    )
    entry = LedgerEntry(
        job="delays",
        generation=1,
        batch=3,
        table=TABLE,
        kind="row",
        sources=sources,
        accounting={"flights": {"read": 8, "written": 7, "quarantined": 1}},
        fingerprint="9f2c",
        extra={
            "lookups": {"carriers": {"table": "dim.carriers", "version": 7, "id": "x"}},
            "checks": [{"check": "c", "outcome": "within", "action": "quarantine", "judged": 8, "failed": 1}],
        },
    )
    (run,) = runs_of([Commit(4, 61_000, "WRITE", 7, 0, True, entry, ("part",))], 60_000)
    place = Place(namespace="demo", version="1.2", tables="/data/tables", brokers={"": "host:9092"})
    return events_of(
        run,
        place,
        schemas={TABLE: {"carrier": "string"}, "silver.rows": {"at": "timestamp"}},
        columns={
            "carrier": [("flights", "carrier", "IDENTITY"), ("carriers", "name", "TRANSFORMATION")],
            CHOSEN: [("flights", "at", "GROUP_BY")],
        },
        assertions=[Assertion(name="fresh", success=False, severity="warn", column="at", actual="1 day")],
        spark="4.2.0",
    )


def structured(kind: Any, value: Any) -> Any:
    """A value as an object of one of the client's classes; a key that it does not know, or lacks, is an error."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (present,) = (each for each in arguments if each is not NoneType)
        return structured(present, value)
    if origin is list:
        return [structured(arguments[0], each) for each in value]
    if origin is dict:
        return {name: structured(arguments[1], each) for name, each in value.items()}
    if kind is Any:
        return value
    if issubclass(kind, base.BaseFacet):
        url = value["_schemaURL"]
        if url.startswith("urn:headwater:"):
            return value
        assert url in FACETS, f"{url} is not the newest of its schema"
        kind, value = FACETS[url], {name: each for name, each in value.items() if name != "_schemaURL"}
    elif issubclass(kind, base.BaseEvent):
        assert value["schemaURL"] == kind._get_schema()
        value = {name: each for name, each in value.items() if name != "schemaURL"}
    if attr.has(kind):
        hints = get_type_hints(kind)
        return kind(**{name.removeprefix("_"): structured(hints[name], each) for name, each in value.items()})
    if issubclass(kind, Enum):
        return kind(value)
    assert isinstance(value, kind), f"{value!r} is no {kind.__name__}"
    return value


def test_events_are_what_openlineages_own_client_sends() -> None:
    started, done = (structured(base.RunEvent, each) for each in events())
    assert (started.eventType, done.eventType) == (base.EventType.START, base.EventType.COMPLETE)
    assert [each.name for each in done.inputs] == [
        "flights", "flights", "/data/tables/silver/rows", "/data/tables/dim/carriers",
    ]  # fmt: skip
    assert {*done.outputs[0].facets} == {"symlinks", "version", "schema", "columnLineage"}


@pytest.mark.parametrize(
    "change", ["a key that is not known", "no name", "an older facet", "a number for a text"]
)
def test_events_that_are_wrong_are_refused_by_the_client(change: str) -> None:
    done = events()[1]
    read = done["inputs"][0]
    if change == "a key that is not known":
        read["inputFacets"]["inputStatistics"]["rows"] = 1
    elif change == "no name":
        del read["name"]
    elif change == "an older facet":
        facet = done["outputs"][0]["facets"]["schema"]
        facet["_schemaURL"] = facet["_schemaURL"].replace("1-2-0", "1-1-1")
    else:
        done["run"]["facets"]["processing_engine"]["version"] = 4
    with pytest.raises((TypeError, KeyError, AssertionError)):
        structured(base.RunEvent, done)
