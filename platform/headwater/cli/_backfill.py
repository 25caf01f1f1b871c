"""What `headwater backfill` prints for people, and how it reads the ranges that people write."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli._common import console, duration_text, print_line, print_table, value_text
from headwater.errors import UsageError
from headwater_streams.base.ledger_entry import spelled
from headwater_streams.base.plural import quantity
from headwater_streams.base.target import declared_name
from headwater_streams.ledger.repairs import again

if TYPE_CHECKING:
    from headwater_streams.backfill import BackfillPlan, BatchVersion, Verdict
    from headwater_streams.backfill.diff import Diff
    from headwater_streams.backfill.whole import WholePlan

FED_STOP = "a job that has read replaced rows stops at the swap until its table is rebuilt, in this order"
FED_GO_ON = (
    "they pass over the swap, so their own rows stay as they are until those are repaired, too, in this order"
)
_MOST_OPTIONS = 6
_OFFSETS = re.compile(r"(?P<topic>.+):(?P<partition>[0-9]{1,18})=(?P<start>[0-9]{1,18})-(?P<end>[0-9]{1,18})")


def print_behind(feeds: Sequence[str], ranges: Mapping[str, Mapping[str, Sequence[int]]] | None) -> None:
    """Prints how to repair the jobs that read a table after its rows were replaced: at these offsets, or as a whole."""
    if not feeds:
        return
    plan, names = "headwater backfill plan JOB", ", ".join(feeds)
    if ranges is None:
        print_line(f"it feeds {names}; {FED_STOP}: {plan} --rebuild")
    else:
        print_line(f"it feeds {names}; {FED_GO_ON}: {plan} {_as_options(ranges)}, or --rebuild")


def still_open(job: str, start: str, end: str) -> str:
    """What happens to windows that were open at the swap of a repair, and how to repair them."""
    return (
        f"windows of [{start}, {end}) were still open in the live job: when more rows of them come it writes them "
        f"again without this repair; once they are closed, repair them again: {again(job, start, end)}"
    )


def _as_options(ranges: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    options = [
        f"--offsets {topic}:{partition}={start}-{end}"
        for topic, partitions in ranges.items()
        for partition, (start, end) in partitions.items()
    ]
    return (
        " ".join(options)
        if len(options) <= _MOST_OPTIONS
        else "with --offsets for each partition of the plan"
    )


def parse_offsets(texts: Sequence[str]) -> dict[str, dict[int, tuple[int, int]]]:
    """Reads `topic:partition=start-end`, the end exclusive.

    Raises:
        UsageError: One of them is not of that form, or a partition is given twice.
    """
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for text in texts:
        match = _OFFSETS.fullmatch(text)
        if match is None:
            raise UsageError(
                f"--offsets {text}: write TOPIC:PARTITION=START-END, the end exclusive, such as flights:0=100-200"
            )
        partitions = ranges.setdefault(match["topic"], {})
        partition = int(match["partition"])
        if partition in partitions:
            raise UsageError(f"--offsets {text}: partition {partition} of {match['topic']} is given twice")
        partitions[partition] = (int(match["start"]), int(match["end"]))
    return ranges


def print_plan(planned: "BackfillPlan", takes_s: float | None = None) -> None:
    """The plan: what is read, how long that may take, what is replaced, what to know."""
    value = planned.to_json()
    read = ", ".join(spelled(value["ranges"]))
    windows = value["windows"]
    replaced = f"the rows of {read}"
    if windows:
        replaced = ", ".join(f"[{start}, {end})" for start, end in windows[:3])
        replaced = f"windows that begin in {replaced}" + (
            f" and {len(windows) - 3} more" if len(windows) > 3 else ""
        )
    lines = {
        "backfill": planned.id,
        "job": f"{planned.job}, code {planned.fingerprint}",
        "table": "; ".join(
            f"{name}, planned on version {part.base_version}" for name, part in planned.parts.items()
        ),
        "reads": f"{quantity(planned.rows, 'row')} of {read or 'no offset'}",
        **_takes(takes_s),
        "replaces": replaced,
        "steps": f"{len(planned.chunks)}",
    }
    read_at = [pinned for pinned in (planned.pinned, planned.partner) if pinned is not None]
    if read_at:
        lines["input"] = ", ".join(f"{pinned.table} at version {pinned.version}" for pinned in read_at)
    if planned.feeds:
        lines["feeds"] = f"{', '.join(planned.feeds)}; {FED_GO_ON}"
    _print_lines(lines)
    print_notes(planned.notes)
    print_line(f"next: headwater backfill preview {planned.id}, or run {planned.id}")


def print_whole(planned: "WholePlan", takes_s: float | None = None) -> None:
    """The plan of a rebuild or of a rewind."""
    lines = {
        "backfill": planned.id,
        "job": f"{planned.job}, code {planned.fingerprint}",
        "table": f"{planned.target}, as generation {planned.generation}",
        "replaces": ", ".join(planned.tables),
    }
    if planned.mode == "rebuild":
        lines["reads"] = (
            f"its inputs from their beginning; the live job has read {quantity(planned.rows, 'row')}"
        )
        lines |= _takes(takes_s)
        if behind := planned.to_json().get("behind"):
            lines["behind"] = (
                f"{', '.join(behind)}, of which it reads what they have made; swap these in first"
            )
        following = "run"
    else:
        value = planned.to_json()
        others = "".join(f", version {version} of {name}" for name, version in value["versions"].items())
        of = f" of {planned.target}" if others else ""
        lines["back to"] = f"version {value['version']}{of}{others}, after batch {value['batch']}"
        lines["reads"] = f"{quantity(planned.rows, 'row')} again: {', '.join(spelled(value['ranges']))}"
        following = "verify"
    if planned.feeds:
        lines["feeds"] = f"{', '.join(planned.feeds)}; {FED_STOP}"
    _print_lines(lines)
    print_notes(planned.notes)
    own = declared_name(planned.job)
    if planned.mode == "rebuild" and any(declared_name(job) != own for job in planned.feeds):
        ready = f"headwater backfill plan JOB --rebuild --behind {planned.id}"
        print_notes([f"once this has run, the tables behind it can be made ready for the swap, too: {ready}"])
    print_line(f"next: headwater backfill {following} {planned.id}")


def _takes(seconds: float | None) -> dict[str, str]:
    if seconds is None:
        return {}
    return {"takes": f"about {duration_text(max(seconds, 1))}, at the rate of the live job's largest batches"}


def print_changes(changes: Mapping[str, "Diff"], digest: str, more: str) -> None:
    """What changes in each table: how many rows, and some of them.

    Args:
        changes: The diffs by table, the target's first.
        digest: The digest of all diffs; empty if there is none.
        more: The line to print if not all rows are shown.
    """
    if len(changes) == 1:
        (diff,) = changes.values()
        _print_changes(diff, "", f"; digest {digest}")
    else:
        for name, diff in changes.items():
            _print_changes(diff, f"{name}: ", "")
        if digest:
            print_line(f"digest {digest}")
    if more and any(_is_cut(diff, kind) for diff in changes.values() for kind in diff.samples):
        print_line(more)


def _print_changes(diff: "Diff", of: str, digest: str) -> None:
    print_line(
        f"{of}{quantity(diff.added, 'row')} added, {diff.removed:,} removed, {diff.changed:,} changed, "
        f"{diff.unchanged:,} unchanged{digest}"
    )
    rows = [
        (kind, _short(sample["key"]), _changes(sample))
        for kind, samples in diff.samples.items()
        for sample in samples
    ]
    if rows:
        print_table(["row", "key", "what"], rows, empty="")
    counts = [
        f"{len(samples):,} of {getattr(diff, kind):,} {kind}"
        for kind, samples in diff.samples.items()
        if _is_cut(diff, kind)
    ]
    if counts:
        print_line(f"shown: {', '.join(counts)}")


def _is_cut(diff: "Diff", kind: str) -> bool:
    count: int = getattr(diff, kind)
    return len(diff.samples[kind]) < count


def print_verdict(verdict: "Verdict", target: str, more: str, *, state: str = "verified") -> None:
    """The findings, the diff of each table, the outcome; `more` is printed if a diff has rows that are not shown."""
    rows = [("✓" if f.ok else "✗", f.name, f.detail) for f in verdict.findings]
    print_table(["", "finding", "seen"], rows, empty="")
    beside = {name: change.diff for name, change in verdict.beside.items()}
    print_changes({target: verdict.diff, **beside}, verdict.digest, more)
    print_notes(verdict.notes)
    if verdict.passed:
        is_next = state == "verified"
        print_line(
            "passed; "
            + (f"next: headwater backfill swap {verdict.backfill}" if is_next else f"it is {state}")
        )
    else:
        broken = ", ".join(f.name for f in verdict.findings if not f.ok)
        print_line(f"did not pass: {broken}")


def print_status(statuses: Sequence[Mapping[str, Any]]) -> None:
    """One line for each backfill."""
    columns = ["backfill", "mode", "state", "job", "table", "steps", "reads", "planned at (UTC)"]
    rows = [
        (
            s["id"],
            s["mode"],
            s["state"],
            s["job"],
            ", ".join((s["target"], *s["further"])),
            _steps(s),
            s["rows"],
            s["created_at"].rstrip("Z").replace("T", " "),
        )
        for s in statuses
    ]
    print_table(columns, rows, empty="there is no backfill yet: headwater backfill plan JOB")


def _steps(status: Mapping[str, Any]) -> str:
    """The steps done: a rewind has none, and the number of a rebuild's batches is not known before its end."""
    done = status["chunks_done"]
    if status["mode"] == "rewind":
        return ""
    return f"{done} of {status['chunks']}" if status["mode"] == "repair" else f"{done}"


def print_versions(versions: "Sequence[BatchVersion]") -> None:
    """A line for each version, with the reason if a rewind cannot go back to it."""
    columns = [
        "version",
        "generation",
        "batch",
        "committed at (UTC)",
        "read",
        "written",
        "a rewind goes back to it",
    ]
    rows = [
        (
            each.version,
            each.generation,
            each.batch,
            each.committed_at.rstrip("Z").replace("T", " "),
            f"{each.read:,}",
            f"{each.written:,}",
            "yes" if each.why_not is None else f"no: {each.why_not}",
        )
        for each in versions
    ]
    print_table(columns, rows, empty="no batch of the job stands in the table: headwater jobs run")


def print_notes(notes: Sequence[str]) -> None:
    """What a person should know."""
    for note in notes:
        console().print(f"note: {note}", style="dim", markup=False)


def _print_lines(lines: Mapping[str, str]) -> None:
    for name, text in lines.items():
        console().print(f"{name:<9} {text}", markup=False, soft_wrap=True)


def _changes(sample: Mapping[str, Any]) -> str:
    before, after = sample.get("before"), sample.get("after")
    if before is None or after is None:
        return _short(after or before or {})
    return ", ".join(
        f"{name}: {value_text(value)} -> {value_text(after[name])}"
        for name, value in before.items()
        if value != after[name]
    )


def _short(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value_text(part)}" for name, part in value.items())
