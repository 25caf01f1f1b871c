"""kill -9 of backfills, at each step of their verbs and at random instants, while the live jobs go on.

`HEADWATER_BACKFILL_KILLS=100` (`make crash-backfill`) runs it; `HEADWATER_SEED` repeats a run. A round takes more than
a minute, so that without the number it is left out; tests/spark has the same deaths, one by one, in one process.

A row job and a job of windows run over a topic into which records come without end. In turns one of their tables is
repaired, rebuilt or rewound by a process that is killed, sometimes together with the driver of the live jobs, and
started again until all verbs are done. In a home of one kind the second job is a join with a second topic, or one of
sessions, and its table is the one; in a home of another it is one behind the table of the first, and both are
rebuilt, one of what the other has made, and swapped in one after the other. What must hold: each version of a table
that was ever there is made of the codes of before the swap, or of those of after it, to the last row; each reading of
deltalake, DuckDB and Spark is of one of these versions; the ledger's identities are exact; the next backfill is not
refused; of two of one table at once one is refused in a sentence.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backfill_books import Books
from backfill_feed import Feed
from backfill_model import (
    BEGIN,
    STEP_S,
    Codes,
    closed,
    opened,
    reach,
    read,
    rejected,
)
from backfill_processes import Children, DiedError
from backfill_readers import Readers
from jobs_by_code import JOBS

from amount import drawn_seed
from headwater_broker.testing import broker
from headwater_streams import backfill
from headwater_streams.ledger.audit import audit_home
from headwater_streams.storage.home import Home

ROUNDS = int(os.environ.get("HEADWATER_BACKFILL_KILLS", "0"))
SEED = drawn_seed()
ROUNDS_PER_HOME = 10
TARGETS = {
    "clean": "silver.clicks",
    "per_minute": "gold.per_minute",
    "replied": "gold.replied",
    "visits": "gold.visits",
    "onward": "gold.onward",
}
APART, JOINED, FEEDING = ("clean", "per_minute"), ("clean", "replied"), ("clean", "onward")
VISITED = ("clean", "visits")
MENDED = (*APART, "replied", "visits")
MODES = ("repair", "rebuild", "rewind")
SETTLED_S = 240
_CHUNK = ("before chunk", "after chunk")
_BATCH = ("starting", "started", "start", "before commit", "after commit", "end")
_EITHER = ("another table", "the table")
BETWEEN = "between the swaps"
# A join that has just begun, or was rebuilt, has had one batch, perhaps, and no watermark yet.
NOT_YET = "plan again once its watermark has passed them"
# How many records at each partition's end a repair leaves to the live job: the last window's; what waits for replies.
_NOT_DONE = {"clean": 20, "per_minute": 20, "replied": 60, "visits": 20}
_REBUILD = {
    "run": tuple(f"shadow {step}" for step in _BATCH),
    "swap": tuple(f"{when} rebuild of {what}" for when in ("before", "after") for what in _EITHER),
    "rollback": tuple(f"{when} restore of {what}" for when in ("before", "after") for what in _EITHER),
}
STEPS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("repair", "clean"): {
        "run": _CHUNK,
        "swap": ("before quarantine swap", "after quarantine swap", "before swap", "after swap"),
        "rollback": ("before rollback", "after rollback"),
    },
    **{
        ("repair", job): {
            "run": _CHUNK,
            "swap": ("before swap", "after swap"),
            "rollback": ("before rollback", "after rollback"),
        }
        for job in ("per_minute", "replied", "visits")
    },
    **{("rebuild", job): _REBUILD for job in MENDED},
    ("feeding", "clean"): _REBUILD,
    ("feeding", "onward"): {
        "run": _REBUILD["run"],
        "swap": (BETWEEN, "before rebuild of the table", "after rebuild of the table"),
        "rollback": ("before restore of the table", "after restore of the table"),
    },
    **{
        ("rewind", job): {
            "swap": tuple(f"{when} rewind of {what}" for when in ("before", "after") for what in _EITHER),
            "rollback": tuple(
                f"{when} restore of {what}" for when in ("before", "after") for what in _EITHER
            ),
        }
        for job in MENDED
    },
}
RIVALS = (
    ("repair", "repair"),
    ("rebuild", "rebuild"),
    ("repair", "rebuild"),
    ("rewind", "repair"),
    ("rewind", "rebuild"),
)


@pytest.mark.skipif(not ROUNDS, reason="long: make crash-backfill")
@pytest.mark.timeout((2 + ROUNDS) * 300)
def test_backfill_killed_at_any_instant_leaves_the_old_table_or_the_new(tmp_path: Path) -> None:
    print("HEADWATER_SEED", SEED)
    rng, deaths, reads = random.Random(SEED), Counter[str](), Counter[str]()
    cards = Cards(rng)
    for place, first in enumerate(range(0, ROUNDS, ROUNDS_PER_HOME)):
        jobs = (APART, JOINED, FEEDING, VISITED)[(SEED + place) % 4]
        with broker() as running:
            world = World(running.bootstrap, tmp_path / str(first), jobs, rng, deaths)
            try:
                for number in range(first, min(first + ROUNDS_PER_HOME, ROUNDS)):
                    mode = "feeding" if jobs is FEEDING else MODES[(SEED + number) % 3]
                    mended = jobs[1:] if jobs in (JOINED, VISITED) else jobs
                    world.round(number, *cards.draw(mode, mended))
                reads += world.readers.count
            finally:
                world.close()
    print(dict(deaths), "readings", dict(reads))
    assert sum(deaths.values()) >= ROUNDS // 2


class Cards:
    """At which step of which verb a round's backfill is killed: all steps come before one comes again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._left: dict[tuple[str, Sequence[str]], list[tuple[str, str, str]]] = {}

    def draw(self, mode: str, jobs: Sequence[str]) -> tuple[str, str, str, str]:
        """The mode, one of the jobs, the verb and the step."""
        left = self._left.setdefault((mode, jobs), [])
        if not left:
            whole = [
                (job, verb, step)
                for (of, job), verbs in STEPS.items()
                for verb, steps in verbs.items()
                for step in steps
                if of == mode and job in jobs
            ]
            left += self._rng.sample(whole, len(whole))
        return mode, *left.pop()


@dataclass
class Kill:
    """How a backfill's process is killed in a verb: at a step, or at random where it has no name."""

    step: str = ""
    nth: int = 1
    orphans_jvm: bool = False
    with_live: bool = False


@dataclass
class Doing:
    """A backfill that is being done."""

    mode: str
    job: str
    code: int
    given: Mapping[str, Any]
    id: str = ""
    kills: dict[str, list[Kill]] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Its target."""
        return TARGETS[self.job]


class World:
    """A broker's topic, a home, the live jobs, their readers, and a process for backfills."""

    def __init__(
        self,
        bootstrap: str,
        home: Path,
        jobs: Sequence[str],
        rng: random.Random,
        deaths: "Counter[str]",
    ) -> None:
        home.mkdir()
        self.home, self._rng, self._deaths = Home(home), rng, deaths
        self._targets = {job: TARGETS[job] for job in jobs}
        self._feed = Feed(bootstrap)
        self._code = 1
        self._took_s: dict[tuple[str, str, str], float] = {}
        self._running: dict[str, int] = {}
        self._books = {table: Books() for table in self._targets.values()}
        self._children = Children(bootstrap, home)
        self._live = self._children.take()
        self.readers = Readers({table: self.home.table(table) for table in self._books}, home / "read")
        try:
            self._prepare()
            self._live.ask(read_to=str(home / "read"))
            self._actor = self._children.take()
        except BaseException:
            self.close()
            raise
        self._feed.start()

    def close(self) -> None:
        """Ends all processes and threads."""
        self.readers.stop()
        if self._feed.is_alive():
            self._feed.stop()
        self._children.close()

    def round(self, number: int, mode: str, job: str, verb: str, step: str) -> None:
        """One backfill, or one and another behind it, killed on its way, and what must hold after it."""
        started = time.monotonic()
        if mode == "feeding":
            self._one_behind_another(number, job, verb, step)
        else:
            self._one(number, mode, job, verb, step)
        if number % 5 == 1 and mode != "feeding":
            self._two_at_once(job)
        if self._feed.is_alive():
            self._settle()
        print(f"  {time.monotonic() - started:.1f} s, {self._feed.sent} records", flush=True)

    def _prepare(self) -> None:
        """Runs the live jobs over what there is at first."""
        for job in self._targets:
            self._start(job, 1)
            self._settle([job])

    def _one(self, number: int, mode: str, job: str, verb: str, step: str) -> None:
        rng = self._rng
        doing = self._doing(mode, job)
        verbs = ["plan", "run", "verify", "swap"]
        if verb == "rollback" or rng.random() < 0.15:
            verbs.append("rollback")
        doing.kills.setdefault(verb, []).append(self._kill(step))
        if rng.random() < 0.5:
            doing.kills.setdefault(rng.choice(verbs), []).append(self._kill())
        print(number, mode, job, doing.given, doing.kills, flush=True)
        for each in verbs:
            self._until_done(doing, each)

    def _one_behind_another(self, number: int, job: str, verb: str, step: str) -> None:
        """Rebuilds a table and the one behind it of what that rebuild made, by codes with the same number."""
        rng = self._rng
        first = self._doing("rebuild", "clean")
        second = Doing("rebuild", "onward", first.code, {})
        order = [(doing, each) for doing in (first, second) for each in ("plan", "run")]
        order += [(doing, each) for each in ("verify", "swap") for doing in (first, second)]
        if verb == "rollback" or rng.random() < 0.15:
            order += [(second, "rollback"), (first, "rollback")]
        (first if job == "clean" else second).kills.setdefault(verb, []).append(self._kill(step))
        if rng.random() < 0.5:
            doing, each = rng.choice(order)
            doing.kills.setdefault(each, []).append(self._kill())
        print(number, "feeding", job, first.kills, second.kills, flush=True)
        for doing, each in order:
            if doing is second and each == "plan":
                second.given = {"behind": [first.id]}
            self._until_done(doing, each)

    def _doing(self, mode: str, job: str, given: Mapping[str, Any] | None = None) -> Doing:
        self._code += 1
        doing = Doing(mode, job, self._code, {})
        if mode == "repair":
            doing.given = given or self._range(job)
        elif mode == "rewind":
            doing.given = {"version": self._earlier(job)}
        return doing

    def _range(self, job: str) -> dict[str, Any]:
        """Some of what the live job has read; of windows such as no record comes to any more."""
        table, rng = TARGETS[job], self._rng
        until = reach(table, read(self.home.table(table), table))
        last = min(until) // 2 - _NOT_DONE[job]
        per_chunk = max(30, last // 2)  # a few chunks: each is a Spark job or two
        if job in ("per_minute", "visits") and rng.random() < 0.7:
            start, end = sorted(rng.sample(range(last * 2 * STEP_S // 60), 2))
            moments = [
                (BEGIN + timedelta(minutes=m, seconds=rng.choice([0, 0, 7]))).isoformat()
                for m in (start, end)
            ]
            return {"event_time": moments, "rows_per_chunk": per_chunk}
        pairs = {str(p): sorted(rng.sample(range(last), 2)) for p in rng.choice([(0,), (1,), (0, 1)])}
        return {"offsets": {"clicks": pairs}, "rows_per_chunk": per_chunk}

    def _earlier(self, job: str) -> int:
        """A version that the job can be put back to, once there is one."""
        until = time.monotonic() + SETTLED_S
        while True:
            found = [v.version for v in backfill.versions(self.home, JOBS[job](1)) if v.why_not is None]
            if len(found) > 2:
                return self._rng.choice(found[-30:])
            self._look_after(job)
            assert time.monotonic() < until, f"{job} makes no batches; {self._live.log()}"
            time.sleep(0.5)

    def _kill(self, step: str = "") -> Kill:
        rng = self._rng
        nth = (
            rng.choice([1, 2])
            if step.startswith("shadow") and "tarted" not in step and "ting" not in step
            else 1
        )
        return Kill(step, nth, rng.random() < 0.3, rng.random() < 0.25)

    def _until_done(self, doing: Doing, verb: str) -> dict[str, Any]:
        """Does a verb until no kill comes between; if it has not been planned yet, it is planned."""
        kills = doing.kills.get(verb, [])
        while True:
            kill = kills.pop(0) if kills else None
            begun = time.monotonic()
            try:
                answer = self._once_it_can(doing, partial(self._ask, doing, verb, kill))
            except DiedError:
                self._died(doing, verb, kill)
                continue
            assert "done" in answer, f"{doing} {verb}: {answer.get('failed') or answer}"
            if answer["done"].get("state") == "paused":
                backfill.resume(self.home, doing.id)
                continue
            break
        done: dict[str, Any] = answer["done"]
        print(f"  {verb} {time.monotonic() - begun:.1f} s", flush=True)
        key = (doing.mode, doing.job, verb)
        self._took_s[key] = max(self._took_s.get(key, 0.0), time.monotonic() - begun)
        if verb == "plan":
            self._planned(doing, done)
        elif verb == "verify":
            assert done["passed"], [finding for finding in done["findings"] if not finding["ok"]]
        elif verb in ("swap", "rollback"):
            state = backfill.status(self.home, doing.id)["state"]
            assert state == ("swapped" if verb == "swap" else "rolled back")
            self._follow(doing.job)
        return done

    def _once_it_can(self, doing: Doing, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """An answer; a plan is asked for again until the watermark has passed what it repairs."""
        until = time.monotonic() + SETTLED_S
        while (answer := ask()).get("refused", "").endswith(NOT_YET):
            assert time.monotonic() < until, answer
            self._look_after(doing.job)
            time.sleep(0.5)
        return answer

    def _ask(self, doing: Doing, verb: str, kill: Kill | None) -> dict[str, Any]:
        if not self._actor.is_alive:
            self._actor = self._children.take()
        if kill is not None and kill.step == BETWEEN:
            self._actor.kill(orphans_jvm=kill.orphans_jvm)
            raise DiedError
        asked = self._asked(doing, verb)
        if kill is not None and kill.step:
            asked |= {"trap": [kill.step, kill.nth], "orphan": kill.orphans_jvm}
        number = self._actor.send(**asked)
        if kill is not None and not kill.step:
            time.sleep(self._rng.uniform(0, self._took_s.get((doing.mode, doing.job, verb), 3.0)))
            self._actor.kill(orphans_jvm=kill.orphans_jvm)
        return self._actor.answer(number)

    def _planned(self, doing: Doing, plan: Mapping[str, Any]) -> None:
        doing.id = plan["id"]
        books, code = self._books[doing.table], doing.code
        if doing.mode == "rewind":
            books.restored[doing.id] = plan["version"]
            books.effects[doing.id] = lambda _: books.codes[plan["version"]]
        elif doing.mode == "rebuild":
            books.effects[doing.id] = lambda _: Codes(code)
        else:
            places = _places(doing.job, plan)
            books.effects[doing.id] = lambda codes: codes.repaired_by(code, places)

    def _died(self, doing: Doing, verb: str, kill: Kill | None) -> None:
        """What must hold whenever a process was killed; then all go on."""
        assert kill is not None, self._actor.log()
        if kill.with_live:
            self._live.kill()
        where = f"{verb}: {BETWEEN if kill.step == BETWEEN else self._actor.gone()}"
        self._deaths[where] += 1
        print("  died at", where, "with the live jobs" if kill.with_live else "", flush=True)
        for table, books in self._books.items():
            books.look(self.home.table(table), table)
        if doing.id:
            backfill.status(self.home, doing.id)
            if verb == "run" and self._rng.random() < 0.3:
                backfill.pause(self.home, doing.id)
        self._actor = self._children.take()
        if kill.with_live:
            self._live = self._children.take()
            for job, table in self._targets.items():
                self._start(job, self._books[table].now.base)
            self._live.ask(read_to=str(self.home.root / "read"))

    def _start(self, job: str, code: int) -> None:
        self._live.ask(start=job, code=code)
        self._running[job] = code

    def _follow(self, job: str) -> None:
        """Starts the live job with the code that its table was given, as it asks for."""
        table = TARGETS[job]
        self._books[table].look(self.home.table(table), table)
        code, until = self._books[table].now.base, time.monotonic() + SETTLED_S
        if code == self._running[job]:
            return
        if self._rng.random() < 0.5:
            while self._live.ask(running=job)["ended"] is None:
                assert time.monotonic() < until, f"{job} goes on with the code of before; {self._live.log()}"
                time.sleep(0.2)
        self._start(job, code)

    def _look_after(self, job: str) -> str | None:
        """Starts a live job again that was right to stop, such as between two rollbacks, when the table that it reads
        was not put back yet; says why it had."""
        ended: str | None = self._live.ask(running=job)["ended"]
        if ended is None:
            return None
        # Told while it ran, and when it was started.
        told = (
            "of silver.clicks put other rows in the place of those",
            "the rows of silver.clicks: those that it has",
        )
        fed_anew = job == "onward" and any(text in ended for text in told)
        assert fed_anew or "start the job again" in ended, f"{job} ended: {ended}; {self._live.log()}"
        self._books[TARGETS[job]].look(self.home.table(TARGETS[job]), TARGETS[job])
        self._start(job, self._books[TARGETS[job]].now.base)
        return ended

    def _settle(self, jobs: Sequence[str] = ()) -> None:
        """Lets the live jobs, or some of them, read all, and looks at everything."""
        with self._feed.paused():
            last, until = (self._feed.sent - 2, self._feed.sent - 1), time.monotonic() + SETTLED_S
            for job in jobs or self._targets:
                table = TARGETS[job]
                path = self.home.table(table)
                while not (path / "_delta_log").exists() or not self._is_at(table, last):
                    ended = self._look_after(job)
                    assert time.monotonic() < until, f"{table} is not at {last}: {ended}; {self._live.log()}"
                    time.sleep(0.3)
                self._books[table].look(path, table)
            rejects = self.home.table("silver.clicks__quarantine")
            found = opened(rejects).to_table(columns=["_partition", "_offset"]).to_pylist()
            numbers = sorted(row["_offset"] * 2 + row["_partition"] for row in found)
            assert numbers == rejected(self._books["silver.clicks"].now, last)
            for late in (name for name in self.home.tables() if name.endswith("__late")):
                assert not opened(self.home.table(late)).count_rows()
            left = [
                *self.home.root.glob("backfills/*/rehearsal-*"),
                *self.home.root.glob("checkpoints/*/.*.staged"),
            ]
            assert not left
            findings = {audit.table: audit.findings for audit in audit_home(self.home) if audit.findings}
            assert not findings, findings
            self.readers.check({table: books.digests for table, books in self._books.items()})

    def _is_at(self, table: str, last: tuple[int, int]) -> bool:
        """Whether a table has all that follows from the records up to these."""
        whole = closed(self._books[table].now, max(last)) if table == "gold.visits" else last
        return reach(table, read(self.home.table(table), table)) == whole

    def _two_at_once(self, job: str) -> None:
        """Two processes with backfills of one table: on the same one, then each with its own, swapped in at once."""
        modes = self._rng.choice(RIVALS)
        given = {
            "offsets": {"clicks": {"0": [5, 40]}}
        }  # of which some rows differ whatever the two codes are
        rivals = [self._doing(mode, job, given) for mode in modes]
        print("  two at once:", modes, given, flush=True)
        if not self._actor.is_alive:
            self._actor = self._children.take()
        children = (self._actor, self._live)
        for doing, child in zip(rivals, children, strict=True):
            for verb in ("plan", "run", "verify"):
                answer = self._once_it_can(doing, partial(child.ask, **self._asked(doing, verb)))
                assert "done" in answer, answer.get("failed") or answer
                if verb == "plan":
                    self._planned(doing, answer["done"])
        numbers = [
            child.send(**self._asked(doing, "swap")) for doing, child in zip(rivals, children, strict=True)
        ]
        answers = [child.answer(number) for child, number in zip(children, numbers, strict=True)]
        print("  two at once:", answers, flush=True)
        assert any("done" in answer for answer in answers), answers
        if modes[0] == modes[1]:
            assert any("refused" in answer for answer in answers), answers
        for doing, answer in zip(rivals, answers, strict=True):
            if "done" in answer:
                continue
            assert "BackfillError" in answer.get("refused", ""), answer.get("failed") or answer
            state = backfill.status(self.home, doing.id)["state"]
            if state in ("verified", "failed"):
                assert backfill.abort(self.home, doing.id)["state"] == "aborted"
        self._follow(job)

    @staticmethod
    def _asked(doing: Doing, verb: str) -> dict[str, Any]:
        asked = {"verb": verb, "mode": doing.mode, "job": doing.job, "code": doing.code}
        return asked | {"given": dict(doing.given), "id": doing.id}


def _places(job: str, plan: Mapping[str, Any]) -> list[Any]:
    """What a repair replaces: records, or the starts of windows."""
    if job == "visits":  # by the moments at which they begin
        spans = [tuple(map(datetime.fromisoformat, span)) for span in plan["windows"]]
        most = max((end - BEGIN) // timedelta(seconds=STEP_S) for _, end in spans)
        moments = [BEGIN + timedelta(seconds=n * STEP_S) for n in range(most + 1)]
        return [at for at in moments if any(start <= at < end for start, end in spans)]
    if job != "per_minute":
        return [
            offset * 2 + int(partition)
            for partition, (start, end) in plan["ranges"]["clicks"].items()
            for offset in range(start, end)
        ]
    minutes = []
    for start, end in plan["windows"]:
        at = datetime.fromisoformat(start)
        while at < datetime.fromisoformat(end):
            minutes.append(at)
            at += timedelta(minutes=1)
    return minutes
