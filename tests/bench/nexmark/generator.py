"""Nexmark's events: persons, auctions and bids in their proportions, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

Kind = Literal["person", "auction", "bid"]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
"""The events of one round: first its person, then its auctions, then its bids."""
EVENTS_PER_S = 1000
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, OPEN_AUCTIONS = 1000, 100
"""How far back a seller, a bidder or an auction may be, counted in those."""
SELLER_WITHIN_S = ACTIVE_PERSONS * EPOCH // (PERSONS * EVENTS_PER_S) + 1
"""An auction is opened at most this long after its seller has registered."""
BID_WITHIN_S = 2 * OPEN_AUCTIONS * EPOCH // (AUCTIONS * EVENTS_PER_S) + 1
"""A bid is made at most this long after its auction was opened."""
START_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""Before any record's timestamp: the library takes an event from the future for a mistake."""

_SIZES = {"person": 200, "auction": 500, "bid": 100}
_HOT_BATCH = 100
_HOT_SELLER_ODDS, _HOT_AUCTION_ODDS, _HOT_BIDDER_ODDS, _HOT_CHANNEL_ODDS = 4, 2, 4, 2
"""One in so many is not for what is hot."""
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Event(NamedTuple):
    """One event: what it is, when it happened, and its fields, without the time."""

    kind: Kind
    at_ms: int
    fields: dict[str, Any]


class Generator:
    """The events of a seed, from the first on."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pool = "".join(self._random.choices(_LETTERS, k=1 << 16))
        self._urls = [self._url() for _ in range(_CHANNELS + len(_HOT_CHANNELS))]

    def events(self, count: int) -> Iterator[Event]:
        """The first events, in the order of their times."""
        for number in range(count):
            epoch, place = divmod(number, EPOCH)
            at_ms = START_MS + number * 1000 // EVENTS_PER_S
            if place < PERSONS:
                yield Event("person", at_ms, self._person(epoch * PERSONS + place))
            elif place < PERSONS + AUCTIONS:
                yield Event("auction", at_ms, self._auction(epoch, place - PERSONS, at_ms))
            else:
                yield Event("bid", at_ms, self._bid(epoch))

    def _person(self, number: int) -> dict[str, Any]:
        choose = self._random.choice
        fields = {
            "id": FIRST_ID + number,
            "name": f"{choose(_FIRST_NAMES)} {choose(_LAST_NAMES)}",
            "emailAddress": f"{self._text(7)}@{self._text(5)}.com",
            "creditCard": " ".join(f"{self._random.randrange(10_000):04}" for _ in range(4)),
            "city": choose(_CITIES),
            "state": choose(_STATES),
        }
        return fields | {"extra": self._filler("person", fields)}

    def _auction(self, epoch: int, place: int, at_ms: int) -> dict[str, Any]:
        initial = self._price()
        open_ms = OPEN_AUCTIONS * EPOCH * 1000 // (AUCTIONS * EVENTS_PER_S)
        fields = {
            "id": FIRST_ID + epoch * AUCTIONS + place,
            "itemName": self._text(20),
            "description": self._text(100),
            "initialBid": initial,
            "reserve": initial + self._price(),
            "expires": text_of(at_ms + 1 + self._random.randrange(2 * open_ms)),
            "seller": self._of_persons(epoch, _HOT_SELLER_ODDS, 0),
            "category": FIRST_CATEGORY + self._random.randrange(CATEGORIES),
        }
        return fields | {"extra": self._filler("auction", fields)}

    def _bid(self, epoch: int) -> dict[str, Any]:
        last = epoch * AUCTIONS + AUCTIONS - 1
        if self._random.randrange(_HOT_AUCTION_ODDS):
            auction = last // _HOT_BATCH * _HOT_BATCH
        else:
            auction = self._random.randint(max(0, last - OPEN_AUCTIONS), last)
        if self._random.randrange(_HOT_CHANNEL_ODDS):
            channel = self._random.randrange(len(_HOT_CHANNELS))
            name = _HOT_CHANNELS[channel]
        else:
            channel = len(_HOT_CHANNELS) + self._random.randrange(_CHANNELS)
            name = f"channel-{channel - len(_HOT_CHANNELS)}"
        return {
            "auction": FIRST_ID + auction,
            "bidder": self._of_persons(epoch, _HOT_BIDDER_ODDS, 1),
            "price": self._price(),
            "channel": name,
            "url": self._urls[channel],
            "extra": self._text(_SIZES["bid"] - 32),  # what four numbers of eight bytes leave
        }

    def _of_persons(self, epoch: int, odds: int, hot: int) -> int:
        """A person who has registered: a hot one, the `hot`-th of the newest hundred, or any active one."""
        last = epoch * PERSONS + PERSONS - 1
        if self._random.randrange(odds):
            return FIRST_ID + min(last, last // _HOT_BATCH * _HOT_BATCH + hot)
        return FIRST_ID + self._random.randint(max(0, last - ACTIVE_PERSONS + 1), last)

    def _price(self) -> int:
        return round(10 ** (self._random.random() * 6) * 100)

    def _text(self, length: int) -> str:
        start = self._random.randrange(len(self._pool) - length)
        return self._pool[start : start + length]

    def _filler(self, kind: Kind, fields: dict[str, Any]) -> str:
        used = sum(len(value) if isinstance(value, str) else 8 for value in fields.values())
        return self._text(max(0, _SIZES[kind] - used))

    def _url(self) -> str:
        return f"https://www.nexmark.com/{self._text(5)}/{self._text(5)}/{self._text(5)}/item.htm?query=1"


def text_of(at_ms: int) -> str:
    """A time as the topics have it, in UTC."""
    seconds, ms = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}"
