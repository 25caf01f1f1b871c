"""Where backfills are, read from their folders and their targets' logs; and the flags that steer a run. No Spark."""

from collections.abc import Callable
from typing import Any

from headwater_streams.backfill import handover
from headwater_streams.backfill.progress import PAUSE, Progress, is_done
from headwater_streams.backfill.rebuild import running as rebuild_running
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.repair.running import shadow_entries
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.results import RollbackResult, SwapResult
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.store import (
    AnyPlan,
    BackfillError,
    BackfillFolder,
    FolderStored,
    backfill_ids,
)
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.ledger.repairs import ROLLBACK, SWAP, repairs_of
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import matching, remove_tree
from headwater_streams.storage.home import Home


def status(home: Home, backfill: str) -> dict[str, Any]:
    """One backfill: its plan in short, its state, its progress, its verdict, its swap.

    The states, in their order: planned, running, paused, done, verified or failed, swapping (killed between its
    tables: swap again, or roll back), swapped, rolling back (killed likewise: roll back again), rolled back; or
    aborted.

    Raises:
        BackfillError: There is no such backfill.
        DamagedFileError: A file of it, or the log of a table that it is of, is damaged.
    """
    folder = BackfillFolder(home, backfill)
    planned = folder.plan()
    verdict = folder.read(Verdict)
    done = _steps_done(folder, planned)
    return {
        "id": planned.id,
        "state": _state(home, folder),
        "job": planned.job,
        "target": planned.target,
        "further": list(planned.further),
        "mode": planned.mode,
        "asked": dict(planned.asked),
        "rows": planned.rows,
        "chunks_done": done,
        "chunks": done if not isinstance(planned, BackfillPlan) else len(planned.chunks),
        "created_at": planned.created_at,
        "progress": _told(folder.read(Progress)),
        "passed": None if verdict is None else verdict.passed,
        "digest": None if verdict is None else verdict.digest,
        "swap": _told(folder.read(SwapResult)),
        "rollback": _told(folder.read(RollbackResult)),
    }


def _told(stored: FolderStored | None) -> dict[str, Any] | None:
    return None if stored is None else stored.to_json()


def _pass_over(damaged: DamagedFileError) -> None:
    """`status` of that backfill tells it."""


def list_backfills(
    home: Home, damaged: Callable[[DamagedFileError], None] = _pass_over
) -> list[dict[str, Any]]:
    """The backfills of a home, the oldest first, each as `status` tells it.

    Args:
        home: The home.
        damaged: Is told of each backfill that cannot be read, which is left out.
    """
    found = []
    for backfill in backfill_ids(home):
        try:
            found.append(status(home, backfill))
        except DamagedFileError as error:
            damaged(error)
    return found


def pause(home: Home, backfill: str) -> dict[str, Any]:
    """Makes a run stop at its next chunk; it stays so, across restarts, until `resume`.

    Raises:
        BackfillError: There is no such backfill, or it was aborted or swapped in.
    """
    folder = BackfillFolder(home, backfill)
    swapped = _swapped(home, folder.plan())
    folder.require_open()
    if swapped is not None:
        raise BackfillError(f"the backfill {backfill!r} is {swapped}, and has nothing to pause")
    folder.set_flag(PAUSE)
    return status(home, backfill)


def resume(home: Home, backfill: str) -> dict[str, Any]:
    """Takes the pause back; the next `run` goes on.

    Raises:
        BackfillError: There is no such backfill, or it was aborted.
    """
    folder = BackfillFolder(home, backfill)
    folder.plan()
    folder.require_open()
    folder.clear_flag(PAUSE)
    return status(home, backfill)


def abort(home: Home, backfill: str) -> dict[str, Any]:
    """Gives a backfill up and removes its shadow; the target is as it was.

    Raises:
        BackfillError: It was swapped in, or another process works on it.
    """
    folder = BackfillFolder(home, backfill)
    with folder.held():
        state = _state(home, folder)
        if state in ("swapping", "swapped", "rolling back"):
            raise BackfillError(f"the backfill {backfill!r} was swapped in; roll it back instead")
        if state == "rolled back":
            raise BackfillError(f"the backfill {backfill!r} was rolled back already")
        folder.set_flag("aborted")
        left = [
            folder.shadow,
            folder.quarantine,
            folder.kept,
            folder.further,
            folder.rebuilt,
            *matching(folder.path, "rehearsal-*"),
        ]
        planned = folder.plan()
        if not isinstance(planned, BackfillPlan):
            left.append(handover.staged_checkpoint(home, planned))  # of a swap that was refused or killed
        for path in left:
            remove_tree(path)
    return status(home, backfill)


def _state(home: Home, folder: BackfillFolder) -> str:
    planned = folder.plan()
    if folder.has_flag("aborted"):
        return "aborted"
    swapped = _swapped(home, planned)
    if swapped is not None:
        return swapped
    verdict = folder.read(Verdict)
    if _is_done(folder, planned):
        return "done" if verdict is None else ("verified" if verdict.passed else "failed")
    if folder.has_flag(PAUSE):
        return "paused"
    return "running" if _steps_done(folder, planned) else "planned"


def _swapped(home: Home, planned: AnyPlan) -> str | None:
    """Where a swap and its way back are, by the tables' logs; None before the first."""
    if isinstance(planned, BackfillPlan):
        made = [set(repairs_of(home, name).get(planned.id, {})) for name in planned.tables]
        there, back = SWAP, ROLLBACK
    else:
        made = [set(handover.made_by(home.table(name), planned.id)) for name in planned.tables]
        there, back = planned.mode, handover.RESTORE
    done = [back in actions for actions in made if actions]
    if any(done) and not all(done):
        return "rolling back"
    if any(back in actions for actions in made):
        return "rolled back"
    if any(there in actions for actions in made):
        return "swapped" if there in made[-1] else "swapping"
    return None


def _is_done(folder: BackfillFolder, planned: AnyPlan) -> bool:
    if isinstance(planned, RewindPlan):
        return True
    if isinstance(planned, RebuildPlan):
        return is_done(folder)
    return _steps_done(folder, planned) == len(planned.chunks)


def _steps_done(folder: BackfillFolder, planned: AnyPlan) -> int:
    if isinstance(planned, RewindPlan):
        return 0
    if isinstance(planned, RebuildPlan):
        return len(rebuild_running.shadow_entries(folder, planned))
    return len(shadow_entries(folder))
