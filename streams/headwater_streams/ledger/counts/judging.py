"""Which buckets of a topic an audit judges, and how: those that something new is said of or read in, and no other.

A bucket is judged again when its records or what was said of it change, when a table says something new of its offsets,
and as long as it is not settled. What it is judged by stands in `audit.counts`. Where it cannot be told which buckets a
change reaches - a table lost rows, a log its end, a topic its settings - all of them are. So an audit says of each
bucket what one that judges all of them says.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Any, Protocol

from headwater_client.events import Appended, Counts, Source, bucket_of, event_from_json
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts.facts import Elsewhere, Heard, MirrorFacts, TableFacts, TopicLog
from headwater_streams.ledger.counts.findings import BucketVerdict, Finding, Findings, verdicts
from headwater_streams.ledger.counts.log_runs import LogRuns
from headwater_streams.ledger.counts.mirrors import check_mirror
from headwater_streams.ledger.counts.producers import (
    acknowledged_by,
    begun,
    check_producers,
    opened_ms,
)
from headwater_streams.ledger.counts.said import Record, Said, said_in
from headwater_streams.ledger.counts.store import Counted, Standing, totals
from headwater_streams.ledger.counts.stretches import Stretches, common, merged
from headwater_streams.ledger.counts.tables import check_table, of_this_topic

_DAY_MS = 86_400_000
_KEPT_MS = _DAY_MS
"""So long a producer is spoken of that ended and of which nothing is missing; one that is silent seven times that."""
_MOST = 50_000
"""So many buckets are judged apart from the others; of more, all are."""
Repeats = Callable[[TopicLog, Sequence[Finding]], Mapping[int, Stretches] | None]


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the brokers hold of a topic.

    Attributes:
        topic: The topic.
        bucket_ms: How wide a bucket is.
        before: What was counted before.
        runs: That, and what came since.
        counted: The offsets that were looked at, by partition.
        tail: The buckets of what came since.
        at_ms: When it was looked at.
        is_anew: Whether the topic was read from its beginning, or offsets of it were found to be lost.
        is_cut: Whether an offset that an audit saw is behind the log's end now.
        is_compacted: Whether older records of a key are removed, or may be.
        unseen: Offsets that had been removed before an audit looked, by partition.
        again: Where the topic was deleted and made again, see `TopicLog`.
        heard_ms: The brokers' time of the newest counts that were read before; 0 where that is not known.
        topic_id: The topic's id; None where its brokers give none.
        lost: Offsets, by partition, that an earlier audit saw and that are not in the log now.
    """

    topic: str
    bucket_ms: int
    before: Counted
    runs: LogRuns
    counted: Mapping[int, tuple[int, int]]
    tail: set[int]
    at_ms: int
    is_anew: bool = False
    is_cut: bool = False
    is_compacted: bool = False
    unseen: Mapping[int, Stretches]
    again: tuple[int, int] | None = None
    heard_ms: int = 0
    topic_id: str | None = None
    lost: Mapping[int, Sequence[BucketRun]]

    def log(self, buckets: set[int] | None = None, whole: Mapping[int, Stretches] | None = None) -> TopicLog:
        """What is compared: of some buckets, and all records at some offsets; or all."""
        runs = self.runs.runs() if buckets is None else self.runs.some(buckets, whole or {})
        return TopicLog(
            self.topic,
            self.bucket_ms,
            runs,
            self.counted,
            self.before.marks,
            self.is_compacted,
            self.unseen,
            self.again,
            None if buckets is None else whole or {},
        )


@dataclass(frozen=True, kw_only=True)
class Told:
    """What was read of the topic of counts since the last audit, of one topic.

    Attributes:
        topic: The topic, as producers call it.
        first: What stood there before its log was looked at.
        then: What came until after that.
        again: What earlier audits had read, where it was read once more.
        read: The id of the topic of counts, and up to where its partitions were read before the log was.
        topics: Those of which somebody counts, as the ledger calls them.
    """

    topic: str
    first: Sequence[Record] = ()
    then: Sequence[Record] = ()
    again: Sequence[Record] = ()
    read: tuple[str | None, Mapping[int, int]] = (None, {})
    topics: Sequence[str] = ()


class Kept(Protocol):
    """What audits keep, see `CountsTable`."""

    def rows(self, topic: str, buckets: Collection[int] | None = None) -> list[dict[str, Any]]:
        """The rows of a topic: of some buckets, or all."""

    def unsettled(self, topic: str) -> set[int]:
        """The buckets of a topic that are judged each time."""

    def keep(self, log: TopicLog, verdicts: Sequence[BucketVerdict], at_ms: int, **about: Any) -> int:
        """Writes what was counted and found of a topic."""


class Rows(Protocol):
    """What tables have, see `AtRest`."""

    def state(self, facts: TableFacts) -> dict[str, Any]:
        """What a table is like now."""

    def added(
        self, topic: str, facts: TableFacts, then: Mapping[str, Any], now: Mapping[str, Any]
    ) -> dict[int, list[tuple[int, int]]] | None:
        """Of which offsets a table says something new; None where much has changed."""

    def rows(self, topic: str, facts: TableFacts, within: Mapping[int, Stretches] | None) -> TableFacts:
        """The same with its rows at these offsets."""


@dataclass(frozen=True)
class Judged:
    """What was found.

    Attributes:
        verdicts: Of the buckets that were judged, oldest first.
        findings: What is wrong.
        settled: How many others have which status.
    """

    verdicts: Sequence[BucketVerdict]
    findings: Sequence[Finding]
    settled: Mapping[str, int]


class Judge:
    """Judges a topic, and keeps what it finds.

    Args:
        kept: What audits keep; of a home `CountsTable`.
        look: What the brokers hold.
        told: What producers and brokers say.
        at_rest: Reads what tables have; of a home `AtRest`.
        tables: What tables say of the topic.
        mirrors: What its mirrors hold.
        grace_ms: How long after its end a bucket is open.
        repeats: Which of the records that no producer counted equal another one; None where that is not looked at.
    """

    def __init__(
        self,
        kept: Kept,
        look: Look,
        told: Told,
        *,
        at_rest: Rows,
        tables: Sequence[TableFacts] = (),
        mirrors: Sequence[MirrorFacts] = (),
        grace_ms: int,
        repeats: Repeats = lambda log, uncounted: None,
    ) -> None:
        self.kept, self.look, self.told, self.mirrors = kept, look, told, mirrors
        self.at_rest = at_rest
        self.tables, self.grace_ms, self.repeats = tables, grace_ms, repeats
        self.standing = look.before.standing
        self.spoken_of = [] if self.standing is None else _records(self.standing)
        self.states = {table.table: at_rest.state(table) for table in tables}
        self.added: dict[int, Stretches] = {}
        events = [each.event for each in (*told.again, *told.first, *told.then)]
        widths = {each.bucket_ms for each in events if isinstance(each, Counts | Appended)}
        self.group_ms = lcm(look.bucket_ms, self.standing.group_ms if self.standing else 1, *widths)

    def run(self) -> Judged:
        """Judges what is to be judged, and writes it.

        Raises:
            UnavailableError: Another audit of the same topic wrote at the same time.
        """
        buckets = self._chosen()
        while True:
            round_ = _Round(self, buckets)
            more = round_.reaches()
            if more is not None and not more:
                return round_.keep()
            buckets = None if more is None or buckets is None else self._closed(buckets | more)

    def _chosen(self) -> set[int] | None:
        """The buckets that are judged; None for all."""
        look, then = self.look, self.standing
        if (
            then is None
            or then.judge_all
            or self.mirrors
            or look.is_anew
            or look.is_cut
            or then.is_compacted != look.is_compacted
            or then.group_ms != self.group_ms
            or then.tables.keys() != self.states.keys()
        ):
            return None
        added: dict[int, list[tuple[int, int]]] = {}
        for table in self.tables:
            name = table.table
            of_it = self.at_rest.added(look.topic, table, then.tables[name], self.states[name])
            if of_it is None:
                return None
            for partition, pairs in of_it.items():
                added.setdefault(partition, []).extend(pairs)
        self.added = {partition: merged(pairs) for partition, pairs in added.items()}
        buckets = self.kept.unsettled(look.topic) | look.tail
        buckets |= {run.bucket_start_ms for runs in look.lost.values() for run in runs}
        for partition, offsets in self.added.items():
            buckets |= look.runs.buckets_at(partition, offsets)
        events = [each.event for each in (*self.told.first, *self.told.then)]
        for event in (*events, *(each.event for each in self.spoken_of)):
            if isinstance(event, Counts):
                buckets.add(bucket_of(event.bucket_start_ms, look.bucket_ms))
            elif isinstance(event, Appended):
                buckets |= {bucket_of(bucket, look.bucket_ms) for _, _, bucket in event.runs}
            elif look.topic in event.topics:
                unanswered = event.topics[look.topic].unanswered
                buckets |= {bucket_of(start_ms, look.bucket_ms) for start_ms in unanswered}
        return self._closed(buckets)

    def _closed(self, buckets: set[int]) -> set[int] | None:
        """With those that are counted together with one of them by somebody who counts wider ones."""
        if self.group_ms > _DAY_MS:
            return None
        if self.group_ms > self.look.bucket_ms:
            groups = {bucket - bucket % self.group_ms for bucket in buckets}
            step = self.look.bucket_ms
            buckets = {each for group in groups for each in range(group, group + self.group_ms, step)}
        return buckets if len(buckets) <= _MOST else None


class _Round:
    """One look at some buckets."""

    def __init__(self, judge: Judge, buckets: set[int] | None) -> None:
        self._judge, self._buckets = judge, buckets
        look, told, then = judge.look, judge.told, judge.standing
        self._stored = judge.kept.rows(look.topic, buckets)
        said = Said()
        if then is not None:
            said = said.with_more(said_in(told.topic, self._stored)).with_more(judge.spoken_of)
        self._earlier = said.with_unknown(told.again).with_more(told.first)
        self._log = look.log(buckets)
        self._claims = replace(
            self._earlier.with_more(told.then).claims(self._log, self._earlier, self._elsewhere(said)),
            lost=look.lost,
        )
        self._found = self._compared()
        all_verdicts = verdicts(
            self._found, bucket_ms=look.bucket_ms, now_ms=look.at_ms, grace_ms=judge.grace_ms
        )
        self._verdicts = [v for v in all_verdicts if buckets is None or v.bucket_start_ms in buckets]

    def _elsewhere(self, said: Said) -> Elsewhere:
        then = self._judge.standing
        if then is None or self._buckets is None:
            return Elsewhere(begun_ms=None if then is None else then.begun_ms)
        rest = Counter(then.acknowledged)
        for each in said.counts.values():
            if isinstance(each.event, Counts) and each.event.instance in then.acknowledged:
                rest[each.event.instance] -= each.event.acknowledged
        return Elsewhere(then.begun_ms, then.first_claimed, rest)

    def _compared(self) -> Findings:
        judge, log = self._judge, self._log
        found = Findings(log.topic)
        check_producers(found, log, self._claims, judge.look.at_ms)
        uncounted = [each for each in found.findings if each.kind == "uncounted"]
        repeats = judge.repeats(log, uncounted) if uncounted else None
        if repeats is not None:
            found = Findings(log.topic)
            check_producers(found, log, replace(self._claims, repeats=repeats), judge.look.at_ms)
        for mirror in judge.mirrors:
            check_mirror(found, log, mirror)
        tables = [of_this_topic(table, log) for table in judge.tables]
        whole = None if self._buckets is None else self._spans(tables)
        beside = log if self._buckets is None else judge.look.log(self._buckets, whole)
        within = None if whole is None else {p: beside.offsets(p) for p in beside.runs if beside.offsets(p)}
        if whole is not None and within is not None:
            within = {p: merged([*within.get(p, ()), *whole.get(p, ())]) for p in {*within, *whole}}
        for table in tables:
            check_table(found, beside, judge.at_rest.rows(log.topic, table, within))
        return found

    def _spans(self, tables: Sequence[TableFacts]) -> dict[int, Stretches]:
        """The offsets that tables speak of together with those of the buckets."""
        spans = {partition: [*pairs] for partition, pairs in self._judge.added.items()}
        for table in tables:
            for batch in table.batches:
                span = (batch.start, batch.end)
                if common([span], self._log.offsets(batch.partition)):
                    spans.setdefault(batch.partition, []).append(span)
        return {partition: merged(pairs) for partition, pairs in spans.items()}

    def reaches(self) -> set[int] | None:
        """Which other buckets are to be judged, too; None for all."""
        look, then, buckets = self._judge.look, self._judge.standing, self._buckets
        if buckets is None or then is None:
            return set()
        first = self._found.first_claimed
        if (
            any(not each.buckets and each.kind != "clock" for each in self._found.findings)
            or self._first_judged() != then.first_judged
            or any(offset < then.first_claimed.get(p, offset + 1) for p, offset in first.items())
            or self._speaks_again()
        ):
            return None
        reached = {b for each in self._found.findings if each.kind != "clock" for b in each.buckets}
        reached |= {bucket for bucket, count in self._found.unknown.items() if count}
        for (
            each
        ) in self._earlier.appended:  # of an offset that was counted again the bucket before lost a record
            if isinstance(each.event, Appended):
                pairs = [(start, end) for start, end, _ in each.event.runs]
                reached |= look.runs.buckets_at(each.event.partition, pairs)
        return reached - buckets

    def _first_judged(self) -> int | None:
        begun_ms, width_ms = begun(self._log, self._claims), self._judge.look.bucket_ms
        return None if begun_ms is None else -(-begun_ms // width_ms) * width_ms

    def _speaks_again(self) -> bool:
        """Whether a producer is heard of that was not spoken of any more: what it counted is in any bucket."""
        known = {each.event.instance for each in self._judge.spoken_of}
        acknowledged = acknowledged_by(self._claims)
        return any(
            each.record.topics[self._log.topic].acknowledged > acknowledged[each.record.instance]
            for each in self._claims.sources
            if each.record.instance not in known
        )

    def keep(self) -> Judged:
        """Writes what was found."""
        judge = self._judge
        look, told, then = judge.look, judge.told, judge.standing
        status = Counter(each.status for each in self._verdicts)
        rest = Counter[str]()
        if self._buckets is not None and then is not None:
            rest = Counter(then.totals) - totals(self._stored)
        judge.kept.keep(
            self._log,
            self._verdicts,
            max(look.at_ms, look.heard_ms),  # where the brokers' clock is ahead
            before=look.before,
            standing=self._leaves(rest + status),
            stored=self._stored,
            said=self._earlier.by_place(look.bucket_ms),
            topic_id=look.topic_id,
            lost=look.lost,
            heard_ms=look.heard_ms,
            topics=told.topics,
            judged_all=self._buckets is None,
        )
        return Judged(self._verdicts, self._found.findings, rest)

    def _leaves(self, status: Mapping[str, int]) -> Standing:
        judge, look, then = self._judge, self._judge.look, self._judge.standing
        kept = [each.event for each in self._earlier.counts.values() if isinstance(each.event, Counts)]
        acknowledged = acknowledged_by(replace(self._claims, counts=kept))
        is_uncounted = any(each.kind == "uncounted" for each in self._found.findings)
        sources, begun_ms = list[tuple[str, int, int, bool]](), [then.begun_ms] if then else []
        instances = set[str]()
        for each in self._earlier.sources.values():
            if not isinstance(each.event, Source):
                continue
            heard = Heard(each.event, each.at_ms if each.is_stamped else None)
            missing = each.event.topics[look.topic].acknowledged - acknowledged[each.event.instance]
            if missing > 0 or _is_spoken_of(heard, look, is_uncounted=is_uncounted):
                sources.append((each.event.to_json(), each.partition, each.at_ms, each.is_stamped))
                instances.add(each.event.instance)
            else:
                begun_ms.append(opened_ms(heard))
        return Standing(
            told=judge.told.read,
            sources=sorted(sources),
            acknowledged={each: acknowledged[each] for each in sorted(instances)},
            begun_ms=min((each for each in begun_ms if each is not None), default=None),
            first_judged=self._first_judged(),
            first_claimed=self._found.first_claimed,
            group_ms=judge.group_ms,
            totals=dict(status),
            is_compacted=look.is_compacted,
            tables=judge.states,
            judge_all=bool(judge.mirrors)
            or any(not each.buckets and each.kind != "clock" for each in self._found.findings),
        )


def _is_spoken_of(heard: Heard, look: Look, *, is_uncounted: bool) -> bool:
    """Whether a producer may still be spoken of: it lives, did not say all, or may have sent what nobody counted."""
    record = heard.record
    if record.topics[look.topic].unanswered or (heard.at_ms is None and not record.closed):
        return True
    age_ms = look.at_ms - (record.at_ms if heard.at_ms is None else heard.at_ms)
    return age_ms < _KEPT_MS if record.closed else is_uncounted or age_ms < 7 * _KEPT_MS


def _records(then: Standing) -> list[Record]:
    return [Record(event_from_json(text), p, at_ms, stamped) for text, p, at_ms, stamped in then.sources]
