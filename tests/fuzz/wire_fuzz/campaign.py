"""Sends sessions to a broker, watches it, keeps what led to something new, and tells what was found."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import suppress

from headwater_broker.wire import APIS
from headwater_broker.wire.apis import FETCH, PRODUCE
from wire_fuzz.answers import WrongAnswerError
from wire_fuzz.control import Control
from wire_fuzz.conversation import Conversation
from wire_fuzz.corpus import ANY_API, Corpus, Outcome
from wire_fuzz.schemas import VERSIONS
from wire_fuzz.sessions import PLAIN, SASL, Session, Writer
from wire_fuzz.target import Target
from wire_fuzz.values import World

_QUIET_S = 0.03
"""So long nothing comes before a session whose answer may take its time is put aside."""

_PATIENCE_S = 1.0
_ANSWER_S = 10.0
_ASIDE = 24
_REMEMBERED = 4000
_LIKE_KEPT = 0.4
_ORDER_EVERY_S = 10.0
_LOOK_EVERY = 200
_MORE_MB = 200
_SETTLE_S = 10.0
_MORE_DESCRIPTORS = 40
_LOG = -100_000
"""In place of an API's key, for errors in the log."""

_CLOSED = "closed: "
_CLOSING = "closing the connection of : "
_PEER = re.compile(r"127\.0\.0\.1:(\d+)")
_TYPE = re.compile(r"\w+Request\b|\b[a-z]+(_[a-z]+)+ (?=version)")
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+|[^ -~]+")


class Campaign:
    """One run against one broker.

    Attributes:
        findings: What is wrong, by its kind, with the session that did it where that is known.
        sent: Requests by API key and version.
        outcomes: How often each outcome was seen.
        corpus: What led to something.
    """

    def __init__(self, target: Target, seed: int, corpus: Corpus) -> None:
        self.findings: dict[str, str] = {}
        self.sent: Counter[tuple[int, int]] = Counter()
        self.outcomes: Counter[tuple[int, str]] = Counter()
        self.corpus = corpus
        self.sessions = 0
        self._rng = random.Random(seed)
        self._world = World()
        self._writer = Writer(self._rng, self._world)
        self._target = target
        self._control = Control(target)
        self._aside: list[Conversation] = []
        self._by_port: OrderedDict[int, Conversation] = OrderedDict()
        self._reasons: dict[int, str] = {}  # why the broker closed connections, by their ports
        self._idle_mb = self._after_mb = 0.0
        self._idle_descriptors = 0

    def run(self, seconds: float) -> None:
        """Each version once, then what is kept, then new sessions for so long; a broker that dies ends it."""
        self._control.start()
        for listener in (PLAIN, SASL):
            for api, version in VERSIONS:
                self._send(self._writer.ordinary(api, version, listener))
        self._end_aside()
        self._idle_mb = self._target.resident_mb()
        self._idle_descriptors = len(self._target.descriptors())
        for session in self.corpus.sessions:
            self._send(session)
        deadline, order_at = time.monotonic() + seconds, time.monotonic() + _ORDER_EVERY_S
        while (now := time.monotonic()) < deadline and "the broker died" not in self.findings:
            self._send(self._next())
            if self.sessions % _LOOK_EVERY == 0:
                self._look()
            if now > order_at:
                self._put_in_order()
                order_at = time.monotonic() + _ORDER_EVERY_S
        self._finish()

    def report(self) -> str:
        """What was sent, what came back and what was found."""
        lines = [f"{self.sessions} sessions, {self.sent.total()} requests", "requests by API and version:"]
        for api in APIS.values():
            counts = [self.sent[api.key, version] for version in range(api.lowest, api.highest + 1)]
            codes = {code: count for (key, code), count in self.outcomes.items() if key == api.key}
            best = ", ".join(
                f"{code} {count}" for code, count in sorted(codes.items(), key=lambda x: -x[1])[:6]
            )
            lines.append(f"  {api.name} {api.lowest}-{api.highest}: {counts}; {len(codes)} outcomes: {best}")
        advertised = {(api.key, version) for api, version in VERSIONS}
        others = sum(count for key, count in self.sent.items() if key not in advertised)
        control = self._control
        longest_s = max(control.latencies_s, default=0.0)
        lines += [
            f"  of no version that is advertised: {others}",
            f"memory: {self._idle_mb:.0f} MB before, {self._after_mb:.0f} MB after",
            f"control: {control.records} records, p99 {control.p99_s:.3f} s, longest {longest_s:.3f} s",
            f"corpus: {len(self.corpus.sessions)} sessions",
            *(f"logged {count} times: {text}" for (key, text), count in self.outcomes.items() if key == _LOG),
            f"{len(self.findings)} findings",
            *(f"--- {kind}\n{detail}" for kind, detail in self.findings.items()),
        ]
        return "\n".join(lines)

    # -- sending ---------------------------------------------------------------------------------------

    def _next(self) -> Session:
        kept = self.corpus.any(self._rng) if self._rng.random() < _LIKE_KEPT else None
        return self._writer.session() if kept is None else self._writer.like(kept)

    def _send(self, session: Session) -> None:
        self.sessions += 1
        try:
            conversation = Conversation(session, self._target.ports[session.listener])
        except OSError as error:
            self._find("no connection", f"{error!r}", session)
            self._look()
            return
        self._by_port[conversation.port] = conversation
        if len(self._by_port) > _REMEMBERED:
            self._by_port.popitem(last=False)
        self.sent.update((each.key, each.version) for each in conversation.asked)
        if self._advance(conversation, _QUIET_S):
            self._end(conversation)
        elif conversation.answers.head is not None and not conversation.answers.head.may_wait:
            self._wait(conversation)
        else:
            self._aside.append(conversation)
            if len(self._aside) > _ASIDE:
                self._end(self._aside.pop(self._rng.randrange(len(self._aside))))

    def _advance(self, conversation: Conversation, quiet_s: float) -> bool:
        try:
            return conversation.advance(quiet_s)
        except WrongAnswerError as error:
            self._find(f"wrong answer: {_kind(str(error))}", str(error), conversation.session)
            return True

    def _wait(self, conversation: Conversation) -> None:
        """Waits for an answer that must come; where its client may have been told to wait, over a new connection."""
        if not self._advance(conversation, _PATIENCE_S):
            self._end(conversation)
            self._end_aside()  # a quota may have been behind a request that took its time
            self._put_in_order()
            session = conversation.session
            conversation = Conversation(session, self._target.ports[session.listener])
            head = None if self._advance(conversation, _ANSWER_S) else conversation.answers.head
            if head is not None and not head.may_wait:
                self._find(f"no answer to {head.key} {head.version}", f"{head}", session)
        self._end(conversation)

    def _end(self, conversation: Conversation) -> None:
        """Takes what has come and closes the connection."""
        self._advance(conversation, 0.0)
        conversation.close(politely=self._rng.random() < 0.1)
        self._read_log()
        reason = self._reasons.pop(conversation.port, None)
        answers, session = conversation.answers, conversation.session
        outcomes = list(answers.outcomes)
        if conversation.is_closed and answers.head is not None:
            head = answers.head
            outcomes.append((head.key, head.version, f"{_CLOSED}{reason}"))
            is_failure_silent = any(each.is_silent for each in conversation.asked)
            if session.is_ordinary and session.listener != SASL and not is_failure_silent:
                self._find(f"closed: {head.key} {head.version} {reason}", "an ordinary request", session)
        for entity in answers.entities:
            self._world.learn(entity)
        self.outcomes.update((key, code) for key, _, code in outcomes)
        self.corpus.offer(session, {each for outcome in outcomes for each in _coarse(*outcome)})

    def _end_aside(self) -> None:
        while self._aside:
            self._end(self._aside.pop())

    # -- watching --------------------------------------------------------------------------------------

    def _find(self, kind: str, detail: str, session: Session | None) -> None:
        if kind not in self.findings:
            written = "" if session is None else f"\n{json.dumps(session.to_json())[:20_000]}"
            self.findings[kind] = f"{detail}{written}"
            print(f"finding: {kind}\n{self.findings[kind]}", flush=True)

    def _read_log(self) -> None:
        """Looks at what was logged, and for why connections were closed."""
        lines, wrong = self._target.new_lines()
        for text in wrong:
            peer = _PEER.search(text)
            conversation = self._by_port.get(int(peer[1])) if peer else None
            kind = " ".join(text.strip().splitlines()[-1:]) if "\n" in text else text
            place = text.strip().splitlines()[-3:-1] if "\n" in text else []
            self._find(
                f"log: {_kind(kind)} {_kind(' '.join(place))}", text, conversation and conversation.session
            )
        for line in lines:
            peer = _PEER.search(line.text)
            if peer:
                self._reasons[int(peer[1])] = _kind(_PEER.sub("", line.text)).removeprefix(_CLOSING)
            if line.level in ("ERROR", "CRITICAL"):
                self.outcomes[_LOG, f"{line.level} {line.logger} {_kind(line.text)}"] += 1

    def _look(self) -> None:
        """The process lives, does not grow without a bound, and the other client is content."""
        with suppress(OSError):
            more_mb = self._target.resident_mb() - self._idle_mb
            if more_mb > _MORE_MB:
                self._find("memory", f"{more_mb:.0f} MB more than before", None)
            if self._target.is_alive():
                self._complain()
                return
        self._find("the broker died", self._target.process.log()[-4000:], None)

    def _complain(self) -> None:
        for complaint in self._control.complaints:
            self._find(_kind(complaint), complaint, None)

    def _put_in_order(self) -> None:
        try:
            self._target.put_in_order()
        except (OSError, AssertionError) as error:
            self._find(f"operator: {_kind(str(error))}", repr(error), None)

    def _finish(self) -> None:
        """Nothing is left of connections that are closed; each record of the other client is there, also after a start
        with all that was stored meanwhile."""
        self._end_aside()
        self._look()
        if "the broker died" in self.findings:
            return
        self._put_in_order()
        deadline = time.monotonic() + _SETTLE_S
        while (held := self._left_over()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if held:
            self._find("descriptors", "\n".join(held), None)
        self._after_mb = self._target.resident_mb()
        try:
            self._control.stop()
            self._target.restart()
            self._control.check()
        except (OSError, AssertionError) as error:
            self._find("records of the control, or the broker's next start", repr(error), None)
        self._complain()
        self._read_log()

    def _left_over(self) -> list[str]:
        held = self._target.descriptors()
        is_more = len(held) > self._idle_descriptors + _MORE_DESCRIPTORS
        return held if is_more else [each for each in held if each.endswith("(deleted)")]


def _kind(text: str) -> str:
    """A message without what varies in it."""
    return _TYPE.sub("Request", _VARIABLE.sub("#", text))[:120]


def _coarse(key: int, version: int, codes: str) -> Iterator[Outcome]:
    """What the corpus is to have one session of: each error code alone, with and without the flexible encoding."""
    if codes.startswith(_CLOSED):
        # The other APIs share one reader.
        yield key if key in (PRODUCE, FETCH) else ANY_API, False, codes
    else:
        is_flexible = key in APIS and APIS[key].is_flexible(version)
        for code in codes.split(","):
            yield key, is_flexible, code
