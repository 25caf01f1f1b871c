"""Faults at each tier of a model of the whole way: each is found in its tier and bucket, and nothing else is.

The model has producers with clocks, a log with partitions, a mirror, and a job with its tables. What producers say is
counted by `headwater_client`'s own tally. There is no broker and no Spark, so that 200 seeds take seconds.
"""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

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
    verdicts,
)
from headwater_streams.ledger.counts.facts import Mark
from headwater_streams.ledger.counts.stretches import merged, more_than_once

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
        self.appended: list[Appended] = []
        self.counted = dict.fromkeys(self.partitions, 0)

    # What happens at the brokers.

    def send(self, sender: Sender, *, fault: str = "", partition: int | None = None) -> None:
        """A producer sends a record, and is told where it stands."""
        self.identities += 1
        at_ms = self.now_ms + sender.ahead_ms
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
        """The broker counts what it appended since the last time."""
        for partition, log in self.partitions.items():
            start, end = min(self.counted[partition], self.ends[partition]), self.ends[partition]
            runs = [(at, at + 1, log[at].bucket) for at in range(start, end) if at in log]
            if runs:
                self.appended.append(appended(f"start {start}", partition, runs))
            self.counted[partition] = end

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
        return Claims(counts, heard, repeats, self.appended, earlier=earlier)

    def audit(self) -> Findings:
        log, found = self.log(), Findings("clicks")
        check_producers(found, log, self.claims(), self.now_ms)
        check_mirror(
            found,
            log,
            MirrorFacts(CLUSTER, {p: held(o) for p, o in self.mirrored.items()}, self.mirrored_until),
        )
        rows = {place: {p: held(offsets) for p, offsets in of.items()} for place, of in self.rows.items()}
        check_table(found, log, TableFacts(TABLE, "clicks", self.batches, rows))
        self.marks.append(Mark(self.now_ms, dict(self.ends)))
        return found


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


def simulate(world: World) -> None:
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
            assert differences(world, world.audit(), whole=False) == []
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
