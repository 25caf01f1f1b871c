"""What the verbs of `headwater backfill` share: the home, the session, the planned job, and errors for a person."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli._common import waiting
from headwater.errors import EXIT_FAILED, UsageError, UserError

if TYPE_CHECKING:
    from headwater_streams.plan.job import Job
    from headwater_streams.runtime.context import StageContext
    from headwater_streams.storage.home import Home


def home_of(home: Path) -> "Home":
    """The home by its absolute path, so that it stays the same if the current folder changes."""
    from headwater_streams.storage.home import Home

    return Home(home.resolve())


@contextmanager
def errors() -> Iterator[None]:
    """Raises the errors of the block anew: as a mistake in the command, or as a failure."""
    from headwater_streams.backfill.store import UnknownBackfillError
    from headwater_streams.base.errors import JobDefinitionError, StreamsError

    try:
        yield
    except (JobDefinitionError, UnknownBackfillError) as error:
        raise UsageError(str(error)) from error
    except StreamsError as error:
        raise UserError(str(error), EXIT_FAILED) from error


@contextmanager
def session_of(
    home: Path, bootstrap: str | None, *, needs_broker: bool, is_brief: bool = False
) -> Iterator["StageContext"]:
    """A session that is stopped after the block; a brief one lasts for some seconds."""
    from headwater.running.environment import open_environment
    from headwater_streams.spark.damage_behind import reporting_damage

    with waiting("starting Spark"):
        environment = open_environment(
            home, bootstrap, app_name="headwater backfill", needs_broker=needs_broker, is_brief=is_brief
        )
    try:
        with reporting_damage(environment.context.home):
            yield environment.context
    finally:
        environment.context.spark.stop()


@contextmanager
def planned_session(home: Path, bootstrap: str | None, backfill_id: str) -> Iterator["StageContext"]:
    """A brief session for a backfill; an unknown backfill is refused before Spark starts.

    The brokers tell whether a topic was deleted and made again; without brokers that is not known.
    """
    from headwater_streams.backfill.store import BackfillFolder

    with errors():
        BackfillFolder(home_of(home), backfill_id).plan()
        with session_of(home, bootstrap, needs_broker=False, is_brief=True) as context:
            yield context


@contextmanager
def planned_job(
    home: Path,
    bootstrap: str | None,
    backfill_id: str,
    *,
    needs_broker: bool = True,
    only_repairs: bool = False,
    nice: int = 0,
) -> Iterator[tuple["StageContext", "Job"]]:
    """The session and the job of a backfill.

    Args:
        home: The home.
        bootstrap: The brokers; by default those of the home's running stack.
        backfill_id: The backfill.
        needs_broker: Whether a row job's records are read from the brokers.
        only_repairs: Whether only a repair needs the brokers.
        nice: The priority of this process from here on, and of the JVM that it starts; 19 is the lowest.
    """
    from headwater.running.clusters import reads_default
    from headwater.running.environment import one_job
    from headwater_streams.backfill import BackfillPlan
    from headwater_streams.backfill.store import BackfillFolder

    with errors():
        planned = BackfillFolder(home_of(home), backfill_id).plan()
        if not planned.reference:
            raise UserError(
                f"{backfill_id} was planned from Python and does not say where its job is; run it there"
            )
        job, _ = one_job(planned.reference)
        reads = isinstance(planned, BackfillPlan) or not only_repairs
        broker = needs_broker and reads and planned.kind == "row" and reads_default(job)
        _stand_back(nice)
        with session_of(home, bootstrap, needs_broker=broker) as context:
            yield context, job


def _stand_back(nice: int) -> None:
    if hasattr(os, "nice"):
        os.nice(max(0, nice - os.nice(0)))
