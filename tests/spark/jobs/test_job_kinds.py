"""The story of each kind of job, and of a backfill of what it wrote.

It runs, dies, goes on, and knows what is late and what is rejected. A repair, or a rebuild where there is none, is
planned, run, verified, swapped in and taken back; so is a rewind. None is where a topic was deleted and made again.
"""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from headwater.sql.session import SqlSession
from headwater_streams import backfill
from headwater_streams.backfill import BackfillError
from headwater_streams.base.errors import IncompatibleStateError
from headwater_streams.testing import JobDriver
from headwater_streams.testing.record_log import RecordLog
from job_kinds import KINDS, PLAIN, TABLE, Columns, Kind, in_order, kinds, rows_of, three_batches

_CRASHES = {"crash_at": ("before commit", "after commit")}


@pytest.mark.story
@pytest.mark.parametrize("kind", kinds())
def test_job_kind_gives_its_rows_once_through_crashes(made: Callable[..., JobDriver], kind: Kind) -> None:
    driver = made(three_batches, *kind.jobs(1), kind=kind.name, **_CRASHES)
    assert rows_of(driver, kind) == in_order(kind.rows(1, 0))
    assert driver.rows(f"{kind.sides}__quarantine", "_offset") == [(offset,) for offset in kind.rejected]
    if kind.late is not None:
        late = driver.table(f"{kind.sides}__late").filter("_topic = 'clicks'").select("_offset").collect()
        assert [offset for (offset,) in late] == list(kind.late)
    assert driver.audit() == []


_MENDED = (
    "rows", "tumbling", "session", "count window", "grouped", "union", "windows of a union", "join", "left join",
    "as of", "look-up", "chain", "several tables", "history", "by key",
)  # fmt: skip
"""Kinds whose backfills differ; those of the other kinds go the way of one of these."""
_REWOUND = ("rows", "tumbling", "join")
"""Kinds whose rewinds are stories: of rows, of state in Spark, and of two sides."""
_OTHERS = [kind.name for kind in KINDS if kind.name not in _MENDED]


def swapped_in(driver: JobDriver, kind: Kind, planned: Any, job: Any, columns: Columns = PLAIN) -> None:
    before = rows_of(driver, kind, columns)
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    assert rows_of(driver, kind, columns) == before, "nothing is seen of it before the swap"
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)


def mended(driver: JobDriver, kind: Kind, columns: Columns = PLAIN) -> Any:
    """The backfill that has given the table the rows of another factor."""
    job = kind.jobs(10, columns)[-1]
    planned = (
        backfill.plan(driver.context, job) if kind.repair else backfill.plan_rebuild(driver.context, job)
    )
    swapped_in(driver, kind, planned, job, columns)
    assert rows_of(driver, kind, columns) == kind.after_backfill()
    assert driver.audit() == []
    return planned


@pytest.mark.parametrize("kind", [*kinds(*_MENDED, marks=pytest.mark.story), *kinds(*_OTHERS)])
def test_job_kind_backfill_mends_history_and_is_taken_back(
    ready: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = ready(three_batches, *kind.jobs(1), kind=kind.name, **_CRASHES)
    planned = mended(driver, kind)
    backfill.rollback(driver.context, planned.id)
    assert rows_of(driver, kind) == in_order(kind.rows(1, 0))
    assert driver.audit() == []


_OF_TIMES = (
    "tumbling", "closed", "hopping", "cumulative", "session", "count window", "windows of a union", "join", "left join",
    "as of", "chain", "history", "by key",
)  # fmt: skip
"""Kinds that go by event times."""


@pytest.mark.parametrize("kind", kinds(*_OF_TIMES))
def test_job_kind_before_1970_and_its_backfill_are_what_they_are_after_it(
    made: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = made(three_batches, *kind.jobs(1), kind=kind.name, day="1931-05-04", **_CRASHES)
    assert rows_of(driver, kind) == in_order(kind.rows(1, 0))
    if kind.late is not None:
        late = driver.table(f"{kind.sides}__late").filter("_topic = 'clicks'").select("_offset").collect()
        assert [offset for (offset,) in late] == list(kind.late)
    mended(driver, kind)


@pytest.mark.parametrize(
    "kind",
    [
        *kinds(*_REWOUND, marks=pytest.mark.story),
        *kinds("grouped", "chain", "history", "count window", "latest", "as of", "newest", "table"),
    ],
)
def test_job_kind_rewinds_to_its_first_batch_and_is_taken_back(
    ready: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = ready(three_batches, *kind.jobs(1), kind=kind.name, **_CRASHES)
    job = kind.jobs(1)[-1]
    planned = backfill.plan_rewind(
        driver.context, job, version=backfill.versions(driver.home, job)[0].version
    )
    swapped_in(driver, kind, planned, job)
    assert rows_of(driver, kind) != in_order(kind.rows(1, 0)), "rows of later batches are gone"
    assert driver.audit() == []
    driver.run()
    assert rows_of(driver, kind) == in_order(kind.rows(1, 0)), "and are there again once read again"
    assert driver.audit() == []
    backfill.rollback(driver.context, planned.id)
    assert rows_of(driver, kind) == in_order(kind.rows(1, 0))
    assert driver.audit() == []


@pytest.mark.parametrize("kind", kinds())
def test_job_kind_has_no_backfill_of_a_topic_that_was_made_again(
    ready: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = ready(three_batches, *kind.jobs(1), kind=kind.name, **_CRASHES)
    context, job, topic, before = driver.context, kind.jobs(1)[-1], kind.topics[-1], rows_of(driver, kind)
    version = backfill.versions(driver.home, job)[0].version
    plans: list[Callable[[], Any]] = [
        lambda: backfill.plan_rebuild(context, job),
        lambda: backfill.plan_rewind(context, job, version=version),
        *([lambda: backfill.plan(context, job)] if kind.repair else []),
    ]
    planned = [plan().id for plan in plans]
    assert isinstance(context.source, RecordLog)
    shutil.rmtree(driver.home.root / "records" / topic)
    context.source.declare(topic)
    with pytest.raises(IncompatibleStateError, match=f"the topic {topic}: .* deleted and made again"):
        driver.run()
    if kind.name == "table":  # of which the table has all that it has read
        assert [plan().id for plan in plans] == planned
        return
    for plan in plans:
        with pytest.raises(IncompatibleStateError, match=f"the topic {topic}: .* deleted and made again"):
            plan()
    told = f"the topic {topic} was deleted and made again since the backfill"
    rebuild, rewind, *repair = planned
    for each in (rebuild, *repair):
        with pytest.raises(BackfillError, match=told):
            backfill.preview(context, each, job)
        with pytest.raises(BackfillError, match=told):
            backfill.run(context, each, job)
    for each in (rebuild, rewind, *repair):
        with pytest.raises(BackfillError, match=told):
            backfill.verify(context, each, job)
        with pytest.raises(BackfillError, match=told):
            backfill.swap(context, each)
    assert rows_of(driver, kind) == before


_ODD = Columns(
    who="Who.Is`it'\"?",
    at="geschehen.am",
    n="select",
    cents="\N{EURO SIGN}" * 255,
    name="[b]\N{CJK UNIFIED IDEOGRAPH-540D}.%/\\#",
    clicked_at="clicked.at`",
)
"""Dots, quotes, backticks, a reserved word, 255 characters, markup, what paths and URIs are made of."""
_ODDLY_MENDED = ("rows", "tumbling", "session", "grouped", "join", "as of", "history")


@pytest.mark.parametrize(
    "kind",
    [
        *kinds("tumbling", marks=pytest.mark.story),
        *kinds(*[kind.name for kind in KINDS if kind.name != "tumbling"]),
    ],
)
def test_job_kind_with_odd_names_of_columns_is_what_it_is_with_plain_ones(
    made: Callable[..., JobDriver], kind: Kind
) -> None:
    driver = made(three_batches, *kind.jobs(1, _ODD), kind=kind.name, columns=_ODD)
    assert rows_of(driver, kind, _ODD) == in_order(kind.rows(1, 0))
    assert driver.rows(f"{kind.sides}__quarantine", "_offset") == [(offset,) for offset in kind.rejected]
    if kind.late:
        assert {row[_ODD.who] for row in driver.table(f"{kind.sides}__late").collect()} == {"a"}
    assert driver.audit() == []
    if kind.name in _ODDLY_MENDED:
        mended(driver, kind, _ODD)
    named = [getattr(_ODD, name) for name in kind.columns if hasattr(_ODD, name)]
    with SqlSession(driver.home.root) as sql:
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in named)
        found = sql.run(f"SELECT {listed} FROM {TABLE}")
    assert found is not None
    assert [*found.columns] == named
    assert in_order(found.rows()) == driver.rows(TABLE, *named)
