"""Faults at each tier of a model of the whole way: each is found in its tier and bucket, and nothing else is.

The model has producers with clocks, a log with partitions, a mirror, and a job with its tables. What producers say is
counted by `headwater_client`'s own tally. There is no broker and no Spark, so that 200 seeds take seconds.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from amount import amount
from headwater_client import Appended, Counts, Source, bucket_of
from headwater_client.tally import Tally
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts import (
    Batch,
    Claims,
    Earlier,
    Findings,
    Heard,
    Held,
    MirrorFacts,
    TableFacts,
    TopicLog,
    check_mirror,
    check_producers,
    check_table,
    judging,
    verdicts,
)
from headwater_streams.ledger.counts.facts import Mark
from headwater_streams.ledger.counts.judging import Judge, Look, Told
from headwater_streams.ledger.counts.log_runs import LogRuns
from headwater_streams.ledger.counts.said import Record as OfCounts
from headwater_streams.ledger.counts.store import SETTLED, Counted, Standing, bucket_start, rows_for
from headwater_streams.ledger.counts.stretches import Stretches, merged, more_than_once

BUCKET_MS = 60_000
START_MS = 1_357_034_400_000
HOUR_MS = 3_600_000
EVERY_MS = 10_000
TABLE, CLUSTER = "silver.clicks", "analysis"


@dataclass
class Record:
    """A record in the log.

    Attributes:
        timestamp_ms: Its timestamp.
        identity: What is in it: two with the same are equal in every byte.
        fate: What the job does with it.
    """

    timestamp_ms: int
    identity: int
    fate: str = "table"

    @property
    def bucket(self) -> int:
        return self.timestamp_ms - self.timestamp_ms % BUCKET_MS


@dataclass
class Sender:
    """A producer that counts."""

    name: str
    ahead_ms: int = 0
    tally: Tally = field(default_factory=lambda: Tally(BUCKET_MS, most_ranges=5))
    counts: dict[str, Counts] = field(default_factory=dict)
    heard: Heard | None = None
    dead: bool = False
    silent_until_ms: int = 0  # what it publishes until then is delayed

    def publish(self, now_ms: int, *, closed: bool = False) -> None:
        if self.dead or now_ms < self.silent_until_ms:
            return
        for counts in self.tally.take(self.name, self.name):
            self.counts[counts.key] = counts
        record = Source(
            source=self.name,
            instance=self.name,
            opened_ms=START_MS + self.ahead_ms,
            at_ms=now_ms + self.ahead_ms,
            every_ms=EVERY_MS,
            closed=closed,
            topics=self.tally.totals(),
        )
        self.heard = Heard(record, now_ms)


Expected = Counter[tuple[str, str, int]]
"""Records by tier, kind and bucket."""


class World:
    """One run of the model: what happens is drawn from a seed, and `expected` is what an audit must say of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.partitions: dict[int, dict[int, Record]] = {p: {} for p in range(self.random.randint(1, 3))}
        self.ends = dict.fromkeys(self.partitions, 0)
        self.senders = [Sender(f"web-{n}") for n in range(self.random.randint(1, 3))]
        self.shipper = Sender("shipper")
        self.all = [*self.senders, self.shipper]
        self.marks: list[Mark] = []
        self.expected: Expected = Counter()
        self.vanished: Counter[int] = Counter()  # on their way to the brokers when their producer died
        self.identities = 0
        self.filters = self.random.random() < 0.3
        self.rows: dict[str, dict[int, list[int]]] = {
            place: {p: [] for p in self.partitions} for place in ("table", "quarantine", "late")
        }
        self.batches: list[Batch] = []
        self.read_until = dict.fromkeys(self.partitions, 0)
        self.mirrored: dict[int, list[int]] = {p: [] for p in self.partitions}
        self.mirrored_until = dict.fromkeys(self.partitions, 0)
        self.duplicates: Counter[int] = Counter()
        self.appended: list[Appended] = []  # also those that others of their key replaced
        self.counted = dict.fromkeys(self.partitions, 0)
        self.late: random.Random | None = None

    # What happens at the brokers.

    def send(self, sender: Sender, *, fault: str = "", partition: int | None = None) -> None:
        """A producer sends a record, and is told where it stands."""
        self.identities += 1
        at_ms = self.now_ms + sender.ahead_ms
        if self.late is not None and self.late.random() < 0.05:  # of a minute that is settled, perhaps
            at_ms = max(START_MS + sender.ahead_ms, at_ms - self.late.randint(0, 15) * BUCKET_MS)
        weights = [20, 2, 2, 3 if self.filters else 0]
        fate = self.random.choices(["table", "quarantine", "late", "filtered"], weights)[0]
        record = Record(at_ms, self.identities, fate)
        partition = self.random.choice([*self.partitions]) if partition is None else partition
        sender.tally.sent("clicks", at_ms)
        if fault == "doubled":  # the first answer got lost, and the producer is not idempotent
            self.append(partition, record)
            self.expected["broker", "doubled", record.bucket] += 1
            record = replace(record)
        offset = self.append(partition, record)
        sender.tally.answered("clicks", at_ms)
        sender.tally.acknowledged("clicks", at_ms, partition=partition, offset=offset)
        if fault == "lost":  # a hole: what was acknowledged is not there
            del self.partitions[partition][offset]
            self.expected["broker", "missing", record.bucket] += 1
        elif fault == "truncated":  # and its offset is given away again, most often
            del self.partitions[partition][offset]
            self.ends[partition] -= 1
            self.expected["broker", "missing", record.bucket] += 1
            alive = [each for each in self.senders if not each.dead]
            self.send(self.random.choice(alive), partition=partition)

    def append(self, partition: int, record: Record) -> int:
        offset = self.ends[partition]
        self.partitions[partition][offset] = record
        self.ends[partition] += 1
        if self.random.random() < 0.03:
            self.ends[partition] += 1  # a transaction's marker
        return offset

    def redeliver(self) -> None:
        """The shipper dies before it saved how far it was, and sends the same lines again; the job takes them out."""
        count = self.random.randint(1, 6)
        self.identities += 1
        for _ in range(count):
            record = Record(self.now_ms, self.identities, "duplicate")
            partition = self.random.choice([*self.partitions])
            self.shipper.tally.sent("clicks", self.now_ms)
            offset = self.append(partition, record)
            self.shipper.tally.answered("clicks", self.now_ms)
            self.shipper.tally.acknowledged("clicks", self.now_ms, partition=partition, offset=offset)

    def count(self) -> None:
        """The broker counts what it appended since the last time, and says that with what it said before, or apart."""
        for partition, log in self.partitions.items():
            start, end = min(self.counted[partition], self.ends[partition]), self.ends[partition]
            runs = [(at, at + 1, log[at].bucket) for at in range(start, end) if at in log]
            if runs:
                instance = f"start {len(self.appended)}"
                last = next((each for each in reversed(self.appended) if each.partition == partition), None)
                if last is not None and start == self.counted[partition] and len(last.runs) < 10:
                    instance, runs = last.instance, [*last.runs, *runs]
                self.appended.append(appended(instance, partition, runs))
            self.counted[partition] = end

    def newest_appended(self) -> list[Appended]:
        """The newest record of each key, oldest first."""
        newest = {each.key: at for at, each in enumerate(self.appended)}
        return [self.appended[at] for at in sorted(newest.values())]

    # What happens behind them.

    def mirror(self, *, fault: str = "") -> None:
        for partition, log in self.partitions.items():
            start, end = self.mirrored_until[partition], self.ends[partition]
            offsets = [offset for offset in range(start, end) if offset in log]
            if fault and offsets:
                chosen = self.random.choice(offsets)
                if fault == "missing":
                    offsets.remove(chosen)
                else:
                    offsets.append(chosen)
                self.expected["mirror", fault, log[chosen].bucket] += 1
                fault = ""
            self.mirrored[partition] += offsets
            self.mirrored_until[partition] = end

    def run_batch(self, *, fault: str = "") -> None:
        """The job reads what is there, and loses or doubles something of one partition at most."""
        order = [*self.partitions]
        self.random.shuffle(order)
        for partition in order:
            log, start, end = self.partitions[partition], self.read_until[partition], self.ends[partition]
            if start == end:
                continue
            if fault == "skipped" and start + 1 < end and start in log and self.batches_of(partition):
                self.expected["input", "missing", log[start].bucket] += 1
                fault = ""
                start += 1
            offsets = [offset for offset in range(start, end) if offset in log]
            by_fate: dict[str, list[int]] = defaultdict(list)
            for offset in offsets:
                by_fate[log[offset].fate].append(offset)
            terms = {
                "read": len(offsets),
                "written": len(by_fate["table"]),
                "quarantined": len(by_fate["quarantine"]),
                "late": len(by_fate["late"]),
                "filtered": len(by_fate["filtered"]),
                "duplicate": len(by_fate["duplicate"]),
            }
            for offset in by_fate["duplicate"]:
                self.duplicates[log[offset].bucket] += 1
            fault = self.break_batch(fault, log, by_fate, terms)
            for place, rows in self.rows.items():
                rows[partition] += by_fate[place]
            self.batches.append(Batch(partition, start, end, terms))
            self.read_until[partition] = end

    def break_batch(
        self, fault: str, log: dict[int, Record], by_fate: dict[str, list[int]], terms: dict[str, int]
    ) -> str:
        tier, _, kind = fault.partition(" ")
        place = "table" if tier == "input" else tier
        if kind not in ("missing", "doubled") or not by_fate[place]:
            return fault
        chosen = self.random.choice(by_fate[place])
        if kind == "doubled":
            by_fate[place].append(chosen)
        else:
            by_fate[place].remove(chosen)
        if tier == "input":  # it was not read, and the account does not say so
            terms["read"] -= 1
            terms["written"] -= 1
        self.expected[tier, kind, log[chosen].bucket] += 1
        return ""

    def batches_of(self, partition: int) -> bool:
        return any(batch.partition == partition for batch in self.batches)

    # What an audit is told.

    def log(self) -> TopicLog:
        runs: dict[int, list[BucketRun]] = {}
        for partition, records in self.partitions.items():
            runs[partition] = []
            for offset, record in sorted(records.items()):
                last = runs[partition][-1] if runs[partition] else None
                if last is not None and last.end == offset and last.bucket_start_ms == record.bucket:
                    runs[partition][-1] = replace(last, end=offset + 1)
                else:
                    runs[partition].append(BucketRun(offset, offset + 1, record.bucket))
        counted = {partition: (0, end) for partition, end in self.ends.items()}
        return TopicLog("clicks", BUCKET_MS, runs, counted, tuple(self.marks))

    def claims(self) -> Claims:
        times = Counter(r.identity for log in self.partitions.values() for r in log.values())
        repeats = {
            partition: merged((offset, offset + 1) for offset, r in log.items() if times[r.identity] > 1)
            for partition, log in self.partitions.items()
        }
        counts = [each for sender in self.all for each in sender.counts.values()]
        heard = [s.heard for s in self.all if s.heard is not None]
        earlier = Earlier({each.key: each for each in counts}, {h.record.instance: h.record for h in heard})
        return Claims(counts, heard, repeats, self.newest_appended(), earlier=earlier)

    def audit(self) -> Findings:
        log, found = self.log(), Findings("clicks")
        check_producers(found, log, self.claims(), self.now_ms)
        check_mirror(found, log, self.mirror_facts())
        check_table(found, log, self.table())
        self.marks.append(Mark(self.now_ms, dict(self.ends)))
        return found

    def table(self) -> TableFacts:
        rows = {place: {p: held(offsets) for p, offsets in of.items()} for place, of in self.rows.items()}
        return TableFacts(TABLE, "clicks", tuple(self.batches), rows)

    def mirror_facts(self) -> MirrorFacts:
        return MirrorFacts(CLUSTER, {p: held(o) for p, o in self.mirrored.items()}, dict(self.mirrored_until))


def held(offsets: list[int]) -> Held:
    pairs = [(offset, offset + 1) for offset in offsets]
    return Held(merged(pairs), more_than_once(pairs))


AT_BROKER = ("doubled", "lost", "truncated")
AT_MIRROR = ("missing", "doubled")
AT_JOB = (
    "skipped",
    *(
        "input missing",
        "table missing",
        "table doubled",
        "quarantine missing",
        "quarantine doubled",
        "late missing",
    ),
)


def differences(world: World, found: Findings, *, whole: bool) -> list[str]:
    """What was found and not injected, and the other way round where all must be known by now.

    A finding with several buckets in question stands for one of them: which it is cannot be seen where other records
    of the batch were filtered or removed as duplicates. So findings and faults are matched, each record by itself.
    """
    faults = [key for key, count in world.expected.items() for _ in range(count)]
    finds = [f for f in found.findings if f.kind not in ("clock", "unsent") for _ in range(f.count)]
    # A producer whose counts are delayed for long is taken for one that died, until they come.
    delayed = {s.name for s in world.all if world.now_ms < s.silent_until_ms}
    finds = [f for f in finds if not (f.kind == "uncounted" and delayed & {*f.where})]
    finding_of: dict[int, int] = {}

    def match(find: int, tried: set[int]) -> bool:
        for fault, (tier, kind, bucket) in enumerate(faults):
            each = finds[find]
            if fault in tried or (each.tier, each.kind) != (tier, kind) or bucket not in each.buckets:
                continue
            tried.add(fault)
            if fault not in finding_of or match(finding_of[fault], tried):
                finding_of[fault] = find
                return True
        return False

    wrong = [f"not injected: {finds[find]}" for find in range(len(finds)) if not match(find, set())]
    if whole:
        wrong += [f"not found: {faults[fault]}" for fault in range(len(faults)) if fault not in finding_of]
    return wrong


def nothing_else(world: World) -> None:
    """An audit finds no more than was injected."""
    assert differences(world, world.audit(), whole=False) == []


def simulate(world: World, audit: Callable[[World], object] = nothing_else) -> None:
    """Twenty minutes with up to six faults, audited now and then while it goes on, and once after all has settled."""
    draw = world.random
    faults = Counter(
        draw.choices(
            [*AT_BROKER, "mirror", "job", "dies", "clock", "redelivers", "delayed"], k=draw.randint(0, 6)
        )
    )
    if faults["clock"]:
        world.senders[0].ahead_ms = draw.choice([-HOUR_MS, HOUR_MS])
    when = {name: sorted(draw.sample(range(5, 115), count)) for name, count in faults.items()}
    dying = draw.choice(world.senders)
    for step in range(120):  # of ten seconds
        world.now_ms = START_MS + step * EVERY_MS
        due = [name for name, steps in when.items() if step in steps]
        for sender in world.senders:
            if not sender.dead:
                for _ in range(draw.randint(0, 4)):
                    world.send(sender)
        for name in due:
            if name in AT_BROKER and any(not s.dead for s in world.senders):
                alive = [s for s in world.senders if not s.dead]
                world.send(draw.choice(alive), fault=name)
            elif name == "redelivers":
                world.redeliver()
            elif name == "delayed":
                draw.choice(world.all).silent_until_ms = world.now_ms + draw.randint(1, 8) * EVERY_MS
            elif name == "dies" and not dying.dead and len(world.senders) > 1:
                before = {p: set(log) for p, log in world.partitions.items()}
                dying.silent_until_ms = 0
                for _ in range(draw.randint(0, 8)):
                    at_ms = world.now_ms + dying.ahead_ms
                    dying.tally.sent("clicks", at_ms)
                    world.vanished[bucket_of(at_ms, BUCKET_MS)] += 1
                dying.publish(world.now_ms)
                for _ in range(draw.randint(1, 5)):
                    world.send(dying)  # sent, and never counted
                for p, log in world.partitions.items():
                    for offset in set(log) - before[p]:
                        world.expected["producer", "uncounted", log[offset].bucket] += 1
                dying.dead = True
        for sender in world.all:
            sender.publish(world.now_ms)
        if draw.random() < 0.5:
            world.count()
        if draw.random() < 0.5:
            world.mirror(fault=draw.choice(AT_MIRROR) if "mirror" in due else "")
        if "job" in due or draw.random() < 0.5:
            world.run_batch(fault=draw.choice(AT_JOB) if "job" in due else "")
        if draw.random() < 0.1:
            audit(world)
    world.now_ms += 10 * EVERY_MS
    for sender in world.all:
        sender.publish(world.now_ms, closed=True)
    world.mirror()
    world.run_batch()
    world.now_ms += 100 * EVERY_MS


@pytest.mark.parametrize("seed", range(amount(small=40, full=200)))
def test_counts_find_each_fault_in_its_tier_and_bucket_and_no_other(seed: int) -> None:
    world = World(seed)
    simulate(world)
    found = world.audit()
    assert differences(world, found, whole=True) == [], f"seed {seed}"
    duplicates = {c.bucket_start_ms: c.count for c in found.counts if c.tier == "duplicate"}
    behind = {"input", "table", "quarantine", "late"}
    if not world.filters and not any(tier in behind for tier, _, _ in world.expected):
        assert duplicates == dict(world.duplicates)
    clocks = {f.where for f in found.findings if f.kind == "clock"}
    assert clocks == {(s.name,) for s in world.senders if s.ahead_ms}
    said = verdicts(found, bucket_ms=BUCKET_MS, now_ms=world.now_ms + 2 * HOUR_MS, grace_ms=BUCKET_MS)
    faulty = {bucket for _, _, bucket in world.expected}
    among = {bucket for f in found.findings for bucket in f.buckets if f.kind != "clock"}
    for bucket, count in world.vanished.items():  # each record that nobody counted may be one of them
        unclaimed = (
            world.expected["broker", "doubled", bucket] + world.expected["producer", "uncounted", bucket]
        )
        assert found.unknown[bucket] == max(0, count - unclaimed)
    unknown = {bucket for bucket, count in found.unknown.items() if count}
    assert unknown <= world.vanished.keys()
    among |= unknown
    assert {v.bucket_start_ms for v in said if v.status != "complete"} == among >= faulty


@pytest.mark.parametrize("seed", range(amount(small=40, full=200)))
def test_what_a_broker_counted_and_power_failures_took_is_found_and_no_other(seed: int) -> None:
    """No producer counts. A broker counts now and then, and each power failure takes the end of a log."""
    draw = random.Random(seed)
    logs: list[list[int]] = [[] for _ in range(draw.randint(1, 3))]  # the timestamp of each record
    counted = [0] * len(logs)
    said: list[Appended] = []
    lost: set[tuple[int, int, int]] = set()
    starts = 0
    for turn in range(60):
        for log in logs:
            log += [START_MS + draw.randint(0, 3) * BUCKET_MS for _ in range(draw.randint(0, 4))]
        if draw.random() < 0.4 or turn == 59:
            for partition, log in enumerate(logs):
                if counted[partition] < len(log):
                    runs = [
                        (at, at + 1, bucket_of(log[at], BUCKET_MS))
                        for at in range(counted[partition], len(log))
                    ]
                    said.append(appended(f"start {starts}", partition, runs))
                    counted[partition] = len(log)
        if draw.random() < 0.1 and turn < 59:
            starts += 1
            for partition, log in enumerate(logs):
                end = max(0, len(log) - draw.choice([0, 0, 1, 5]))
                lost |= {
                    (bucket_of(log[offset], BUCKET_MS), partition, offset)
                    for offset in range(end, counted[partition])
                }
                del log[end:]
                counted[partition] = min(counted[partition], end)
    there = {
        partition: [BucketRun(at, at + 1, bucket_of(at_ms, BUCKET_MS)) for at, at_ms in enumerate(log)]
        for partition, log in enumerate(logs)
    }
    of = TopicLog("clicks", BUCKET_MS, there, {p: (0, len(log)) for p, log in enumerate(logs)})
    found = Findings("clicks")
    check_producers(found, of, Claims(appended=said), START_MS + HOUR_MS)
    assert {(f.tier, f.kind) for f in found.findings} <= {("broker", "missing")}
    places = {
        (bucket, partition, offset)
        for f in found.findings
        for bucket in f.buckets
        for partition, pairs in f.places.items()
        for start, end in pairs
        for offset in range(start, end)
    }
    assert places == lost, f"seed {seed}"


def appended(instance: str, partition: int, runs: list[tuple[int, int, int]]) -> Appended:
    """What a broker says that it appended."""
    return Appended(
        source="broker-1",
        instance=instance,
        tier="broker",
        topic="clicks",
        partition=partition,
        start=runs[0][0],
        end=runs[-1][1],
        runs=runs,
    )


class Kept:
    """What audits keep, in memory."""

    def __init__(self) -> None:
        self.by_bucket: dict[int, list[dict[str, Any]]] = {}
        self.before = Counted()
        self.judged = 0

    def rows(self, topic: str, buckets: Collection[int] | None = None) -> list[dict[str, Any]]:
        return [row for b, rows in self.by_bucket.items() for row in rows if buckets is None or b in buckets]

    def unsettled(self, topic: str) -> set[int]:
        return {
            bucket
            for bucket, rows in self.by_bucket.items()
            if any(row["status"] not in SETTLED or row["open"] for row in rows)
        }

    def keep(self, log: TopicLog, verdicts: Sequence[Any], at_ms: int, **about: Any) -> int:
        if about["judged_all"]:
            self.by_bucket.clear()
        for row in about["stored"]:
            self.by_bucket.pop(bucket_start(row["bucket"]), None)
        for row in rows_for(log, verdicts, about["said"]):
            self.by_bucket.setdefault(bucket_start(row["bucket"]), []).append(row)
        ends = {partition: end for partition, (_, end) in log.counted.items()}
        self.before = Counted(
            log.bucket_ms,
            about["before"].runs,
            dict(log.counted),
            [*about["before"].marks, Mark(at_ms, ends)],
            standing=Standing.from_json(json.loads(json.dumps(asdict(about["standing"])))),
        )
        self.judged += len(verdicts)
        return 0

    def without(self, *columns: str) -> dict[int, list[str]]:
        """What it says of each bucket."""
        return {
            bucket: sorted(str({k: v for k, v in _timeless(row).items() if k not in columns}) for row in rows)
            for bucket, rows in self.by_bucket.items()
            if rows
        }


class TableAtRest:
    """The table of a world, of which rows are appended, and removed by hand now and then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.removed = 0

    def state(self, facts: TableFacts) -> dict[str, Any]:
        first: dict[int, int] = {}
        for batch in facts.batches:
            first.setdefault(batch.partition, batch.start)
        repeating = sorted({b.partition for b in facts.batches if (b.terms or {}).get("duplicate")})
        rows = {place: {str(p): len(o) for p, o in of.items()} for place, of in self.world.rows.items()}
        return {
            "kind": [self.removed, repeating, sorted(first.items())],
            "batches": len(facts.batches),
            "rows": rows,
        }

    def added(
        self, topic: str, facts: TableFacts, then: Mapping[str, Any], now: Mapping[str, Any]
    ) -> dict[int, list[tuple[int, int]]] | None:
        if json.dumps(then["kind"]) != json.dumps(now["kind"]):
            return None
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        before = facts.batches[: then["batches"]]
        for batch in facts.batches[then["batches"] :]:
            end = max((b.end for b in before if b.partition == batch.partition), default=batch.start)
            found[batch.partition].append((min(end, batch.start), batch.end))
        for place, of in self.world.rows.items():
            for partition, offsets in of.items():
                new = offsets[then["rows"][place][str(partition)] :]
                found[partition] += [(offset, offset + 1) for offset in new]
        return {partition: merged(pairs) for partition, pairs in found.items()}

    def rows(self, topic: str, facts: TableFacts, within: Mapping[int, Stretches] | None) -> TableFacts:
        if within is None:
            return facts
        rows = {
            place: {
                p: held([o for o in offsets if any(s <= o < e for s, e in within.get(p, ()))])
                for p, offsets in of.items()
            }
            for place, of in self.world.rows.items()
        }
        return replace(facts, rows=rows)


def _timeless(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row; where it has what brokers counted, without when, as that may have been said again since."""
    if row["tier"] != "appended":
        return {**row}
    said = [
        (instance, partition, bucket, offset)
        for instance, partition, bucket, _, pairs, *_ in json.loads(row["said"])
        for start, end in pairs
        for offset in range(start, end)
    ]
    return {**row, "said": sorted(said)}


class TwoAudits:
    """An audit that judges what is new, beside one that judges all of it each time."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world, self.draw = world, draw
        self.new, self.all = Kept(), Kept()
        self.at_rest = TableAtRest(world)
        self.heard: dict[str, OfCounts] = {}  # what the one that judges what is new has read before the log
        self.reopened = 0

    def run(self) -> None:
        world, draw = self.world, self.draw
        if draw.random() < 0.1:
            self.touch_table()
        stand = {key: each for key, each in self.records().items() if self.heard.get(key) != each}
        late = {key for key in stand if draw.random() < 0.1}  # what is published while the log is read
        first = [each for key, each in stand.items() if key not in late]
        then = [stand[key] for key in sorted(late)]
        settled = {b for b, rows in self.new.by_bucket.items() if rows[0]["status"] in SETTLED}
        was = self.new.without()
        self.heard |= {key: each for key, each in stand.items() if key not in late}
        mirrors = [world.mirror_facts()] if draw.random() < 0.2 else []
        found = [
            Judge(
                kept,
                self.look(kept),
                Told(topic="clicks", first=one, then=then),
                at_rest=self.at_rest,
                tables=[world.table()],
                mirrors=mirrors,
                grace_ms=BUCKET_MS,
                repeats=lambda log, uncounted: world.claims().repeats,
            ).run()
            for kept, one in ((self.new, first), (self.all, list(self.heard.values())))
        ]
        assert self.new.without() == self.all.without()
        findings = [sorted(map(str, each.findings)) for each in found]
        assert findings[0] == findings[1]
        totals = Counter(rows[0]["status"] for rows in self.all.by_bucket.values())
        assert self.new.before.standing is not None
        assert Counter(self.new.before.standing.totals) == totals
        now = self.new.without()
        self.reopened += sum(now[bucket] != was[bucket] for bucket in settled & now.keys())

    def touch_table(self) -> None:
        """Somebody removes a row, or writes one again."""
        rows = self.world.rows["table"]
        of_it = rows[self.draw.choice([*rows])]
        if of_it and self.draw.random() < 0.5:
            of_it.remove(self.draw.choice(of_it))
            self.at_rest.removed += 1
        elif of_it:
            of_it.append(self.draw.choice(of_it))

    def records(self) -> dict[str, OfCounts]:
        """The newest record of each key."""
        world = self.world
        found = {
            key: OfCounts(each, 0, START_MS, True)
            for sender in world.all
            for key, each in sender.counts.items()
        }
        for sender in world.all:
            if sender.heard is not None and "clicks" in sender.heard.record.topics:
                found[sender.name] = OfCounts(sender.heard.record, 0, sender.heard.at_ms or 0, True)
        for at, each in enumerate(world.appended):
            found[each.key] = OfCounts(each, 0, at, True)
        return found

    def look(self, kept: Kept) -> Look:
        log, before = self.world.log(), kept.before
        runs = LogRuns.of(log.runs)
        tail = {
            run.bucket_start_ms
            for partition, of_it in log.runs.items()
            for run in of_it
            if run.end > before.bounds.get(partition, (0, 0))[1]
        }
        if kept is self.all:
            before = replace(before, standing=None)
        return Look(
            topic="clicks",
            bucket_ms=BUCKET_MS,
            before=before,
            runs=runs,
            counted=log.counted,
            tail=tail,
            at_ms=self.world.now_ms,
            unseen={},
            lost={},
        )


def two_audits(seed: int) -> TwoAudits:
    world = World(seed)
    world.late = random.Random(seed + 1)
    both = TwoAudits(world, random.Random(seed + 2))
    simulate(world, audit=lambda _: both.run())
    both.run()
    return both


@pytest.mark.parametrize("seed", range(amount(small=20, full=200)))
def test_audit_that_judges_what_is_new_says_what_one_that_judges_all_of_it_says(seed: int) -> None:
    assert two_audits(seed).new.by_bucket


def test_audit_judges_what_is_new_and_settled_buckets_of_which_something_is_said() -> None:
    runs = [two_audits(seed) for seed in range(4)]
    assert sum(each.new.judged for each in runs) < 0.8 * sum(each.all.judged for each in runs)
    assert sum(each.reopened for each in runs) > 0


def test_producer_that_was_not_spoken_of_for_long_goes_on_with_its_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is let go of, and what it counted before is looked up when it speaks again."""
    monkeypatch.setattr(judging, "_KEPT_MS", BUCKET_MS // 7)
    world = World(0)
    both = TwoAudits(world, random.Random(0))
    sender = world.senders[0]
    for minute in (0, 1, 20, 40, 41):
        world.now_ms = START_MS + minute * BUCKET_MS
        if minute != 20:
            world.send(sender)
        for each in world.all[: 1 if minute != 20 else 0]:
            each.publish(world.now_ms, closed=minute == 1)
        world.run_batch()
        both.run()
        assert both.new.before.standing is not None
        assert len(both.new.before.standing.sources) == (0 if minute == 20 else 1)


def both_say(steps: Sequence[tuple[Sequence[tuple[int, int, int]], Sequence[Any]]]) -> list[list[str]]:
    """What is said of each bucket after each step: of runs of a log, and what was said of it since the step before.

    It is judged by what is new, and all of it anew.
    """
    new, said = Kept(), list[OfCounts]()
    words = []
    for at, (runs, events) in enumerate(steps):
        more = [OfCounts(each, 0, START_MS + at, True) for each in events]
        said += more
        ends = [0, *(end for _, end, _ in runs)]
        kept_all = Kept()
        for kept, first in ((new, more), (kept_all, said)):
            before = kept.before.bounds.get(0, (0, 0))[1]
            look = Look(
                topic="clicks",
                bucket_ms=BUCKET_MS,
                before=kept.before,
                runs=LogRuns.of({0: [BucketRun(*run) for run in runs]}),
                counted={0: (0, max(ends))},
                tail={bucket for _, end, bucket in runs if end > before},
                at_ms=START_MS + HOUR_MS,
                unseen={},
                lost={},
            )
            Judge(kept, look, Told(topic="clicks", first=first), at_rest=NO_TABLE, grace_ms=0).run()
        assert new.without() == kept_all.without()
        words.append(
            [f"{rows[0]['status']} {rows[0]['missing']}" for _, rows in sorted(new.by_bucket.items())]
        )
    words.append([str(new.judged)])
    return words


NO_TABLE = TableAtRest(World(0))
NEXT_MS = START_MS + BUCKET_MS


def test_offset_that_a_broker_counts_again_reopens_the_settled_bucket_that_had_it() -> None:
    log = [(0, 5, START_MS), (5, 8, NEXT_MS)]
    first = [appended("start 1", 0, log)]
    assert both_say([(log, first), (log, []), (log, [appended("start 2", 0, [(3, 5, START_MS)])])]) == [
        *([["complete 0", "complete 0"]] * 2),
        ["missing 2", "complete 0"],
        ["3"],  # of two buckets, then none, then one
    ]
    other = [appended("start 2", 0, [(3, 5, NEXT_MS)])]
    assert both_say([(log, first), (log, other)])[1] == ["missing 2", "missing 2"]


def test_what_a_broker_says_again_with_more_behind_it_is_counted_once() -> None:
    log = [(0, 5, START_MS), (5, 8, NEXT_MS)]
    first, more = appended("start 1", 0, log[:1]), appended("start 1", 0, log)
    assert both_say([(log[:1], [first]), (log, [more])])[1] == ["complete 0", "complete 0"]
    # And the last one of its bucket is lost then.
    cut = [(0, 4, START_MS), (5, 8, NEXT_MS)]
    assert both_say([(log[:1], [first]), (cut, [more])])[1] == ["missing 1", "complete 0"]


def test_what_a_broker_counts_again_as_it_found_no_count_is_not_missing() -> None:
    log = [(0, 5, START_MS), (5, 8, NEXT_MS)]
    first = [appended("start 1", 0, log)]
    again = replace(appended("start 2", 0, log), recounted=True)
    steps = [(log, first), (log, [again]), (log, [replace(again, instance="start 3")])]
    assert both_say(steps)[:3] == [["complete 0", "complete 0"]] * 3
    assert both_say([(log, [*first, again])])[0] == ["complete 0", "complete 0"]
    # It has another record there now.
    other = [(0, 4, START_MS), (4, 8, NEXT_MS)]
    again = replace(appended("start 2", 0, other), recounted=True)
    assert both_say([(log, first), (other, [again])])[1] == ["missing 1", "complete 0"]


def test_offset_that_a_second_producer_was_told_reopens_the_settled_bucket_that_has_it() -> None:
    log = [(0, 5, START_MS), (5, 8, NEXT_MS)]

    def claims(name: str, start: int, end: int, bucket: int, width_ms: int = BUCKET_MS) -> Counts:
        return Counts(
            source=name,
            instance=name,
            topic="clicks",
            bucket_start_ms=bucket,
            bucket_ms=width_ms,
            acknowledged=end - start,
            ranges={0: [(start, end)]},
        )

    first = [claims("web-1", 0, 5, START_MS), claims("web-1", 5, 8, NEXT_MS)]
    assert both_say([(log, first), (log, [claims("web-2", 4, 5, START_MS)])]) == [
        ["complete 0", "complete 0"],
        ["missing 1", "complete 0"],
        ["3"],
    ]
    # By one that counts wider buckets: what it says is judged with each of those that it goes over.
    log.append((8, 9, START_MS + 10 * BUCKET_MS))
    wide = [
        claims("web-1", start, end, START_MS + minute * BUCKET_MS, 5 * BUCKET_MS)
        for start, end, minute in ((0, 8, 0), (8, 9, 10))
    ]
    again = [claims("web-2", 6, 8, NEXT_MS)]
    assert both_say([(log, wide), (log, []), (log, again)]) == [
        *([["complete 0"] * 3] * 2),
        ["complete 0", "missing 2", "complete 0"],
        ["5"],  # all three, then none, then two
    ]
