"""kill -9 of the driver of running jobs, at each step of a batch, during start, and at random instants.

`HEADWATER_DRIVER_KILLS=100` (`make crash-driver`) runs the long form; `HEADWATER_SEED` repeats a run.

What must hold at the end: every table is what a run that nobody disturbed made of the same records; each ledger
identity is exact, no offset is missing or read twice; each record that a shipper sent, however often and in whatever
order, is in the table once. Batches are cut by the checkpoint, not by the clock, so that a run can be compared row by
row; only when windows and pairs were written depends on the kills.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from amount import amount, drawn_seed
from headwater_broker.testing import broker
from headwater_streams.ledger.audit import audit_home
from headwater_streams.storage.home import Home

KILLS = amount("HEADWATER_DRIVER_KILLS", small=1, full=2)
SEED = drawn_seed()
PER_BATCH = 40
BATCHES = 4 + KILLS  # of `clean`; a life that is cut short commits one or two
LIFE_S = 2 * (240 + 20 * KILLS)  # the last one reads all batches of what is left undisturbed, too
STEPS = (
    "starting",
    "started",
    "start",
    "before quarantine",
    "before late",
    "before commit",
    "after commit",
    "end",
    "before compaction",
    "after compaction",
)
CHILD = Path(__file__).with_name("driver") / "child.py"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = {
    "silver.clicks": ("_offset",),
    "silver.clicks__quarantine": ("_offset",),
    "gold.per_minute": ("who", "window_start"),
    "gold.per_minute__late": ("_offset",),
    "gold.pairs": ("who", "at", "ordered_at", "_offset"),
    "gold.pairs__late": ("_input", "_offset"),
    "gold.pairs__ingest_orders": ("_offset",),
}
if "HEADWATER_DRIVER_KILLS" in os.environ:
    TABLES |= {
        "gold.runs": ("who", "window_index"),
        "gold.runs__late": ("_offset",),
        "silver.both": ("_offset",),
        "gold.final": ("who", "window_start"),
        "gold.final__quarantine": ("_partition", "_offset"),
    }


@pytest.mark.story
@pytest.mark.timeout((3 + KILLS) * 300)
def test_driver_killed_at_any_instant_leaves_the_tables_of_an_undisturbed_run(tmp_path: Path) -> None:
    print("HEADWATER_SEED", SEED)
    rng = random.Random(SEED)
    with broker() as running:
        sent = _produce(running.bootstrap, rng)
        deaths: Counter[str] = Counter()
        steps: list[str] = []
        for _ in range(KILLS):
            steps = steps or rng.sample(STEPS, len(STEPS))
            if rng.random() < 0.3:
                deaths[_kill_at_random(running.bootstrap, tmp_path / "killed", rng)] += 1
            else:
                nth = rng.randrange(1, 5)
                deaths[_live(running.bootstrap, tmp_path / "killed", steps.pop(), str(nth))] += 1
        print(dict(deaths))
        (tmp_path / "undisturbed").mkdir()
        _live(running.bootstrap, tmp_path / "killed", "once", str(tmp_path / "undisturbed"))
    undisturbed, killed = Home(tmp_path / "undisturbed"), Home(tmp_path / "killed")
    for home in (undisturbed, killed):
        findings = {audit.table: audit.findings for audit in audit_home(home)}
        assert set(findings) >= {"silver.clicks", "gold.per_minute", "gold.pairs"}
        assert not any(findings.values()), findings
    for table, order in TABLES.items():
        assert _rows(killed, table, order) == _rows(undisturbed, table, order), table
    assert _totals(killed) == _totals(undisturbed)
    there = DeltaTable(str(killed.table("silver.clicks"))).to_pyarrow_table(columns=["n", "_origin"])
    numbers = sorted(row["n"] for row in there.to_pylist())
    assert numbers == sorted(n for n in sent if n % 7)
    late = DeltaTable(str(killed.table("gold.per_minute__late"))).to_pyarrow_table(columns=["_offset"])
    assert late.num_rows, "no row was late: the test shows less than it says"


def _produce(bootstrap: str, rng: random.Random) -> list[int]:
    """Clicks of two shippers with what they sent again, out of order, and bad values; orders as they come.

    Returns:
        The numbers of the good clicks, each once.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept = {"retention.ms": "-1"}  # the records' timestamps are of a fixed day, long past
    topics = [NewTopic("clicks", 2, 1, config=kept), NewTopic("orders", 1, 1, config=kept)]
    for made in admin.create_topics(topics).values():
        made.result(10)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    good: list[int] = []
    lines: list[tuple[str, int, bytes]] = []
    records = PER_BATCH * BATCHES
    for number in range(records * 3 // 4):
        behind = rng.choice([0, 0, 0, 10, 45, 900])
        at = BEGIN + timedelta(seconds=number - behind)
        value = {"who": rng.choice("abc"), "n": number, "at": at.isoformat()}
        if rng.random() < 0.05:
            lines.append((rng.choice("xy"), number, rng.choice([b"not JSON", b'{"n": 3}', b""])))
        else:
            good.append(number)
            lines.append((rng.choice("xy"), number, json.dumps(value).encode()))
    origins = {"x": 0, "y": 0}
    placed: list[tuple[str, int, bytes]] = []
    for shipper, _, line in lines:
        placed.append((shipper, origins[shipper], line))
        origins[shipper] += 1
    for at in range(
        0, len(placed), 25
    ):  # what a shipper sends again comes in any order, near and far from the first
        again = rng.sample(placed[max(0, at - 60) : at + 25], 8)
        delivery = placed[at : at + 25] + again
        if rng.random() < 0.3:
            rng.shuffle(delivery)
        for shipper, offset, line in delivery:
            origin = {"cluster": "ship", "topic": shipper, "partition": "0", "offset": str(offset)}
            headers: list[Any] = [(f"headwater-origin-{k}", v.encode()) for k, v in origin.items()]
            producer.produce(
                "clicks", line, headers=headers, partition=rng.randrange(2), timestamp=_ms(BEGIN)
            )
    for number in range(records // 4):
        order = {"who": rng.choice("abc"), "ordered_at": (BEGIN + timedelta(seconds=3 * number)).isoformat()}
        producer.produce("orders", json.dumps(order).encode(), timestamp=_ms(BEGIN))
    assert producer.flush(30) == 0
    return good


def _start(bootstrap: str, home: Path, *arguments: str) -> "subprocess.Popen[str]":
    home.mkdir(exist_ok=True)
    with (home / "said").open("a") as said:
        return subprocess.Popen(
            [sys.executable, str(CHILD), bootstrap, str(home), *arguments],
            env={**os.environ, "HEADWATER_PER_BATCH": str(PER_BATCH)},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )


def _live(bootstrap: str, home: Path, *arguments: str) -> str:
    """One life of the driver: how it ended."""
    child = _start(bootstrap, home, *arguments)
    try:
        out, _ = child.communicate(timeout=LIFE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise AssertionError((home / "said").read_text()[-4000:]) from None
    assert child.returncode == (0 if arguments[0] == "once" else 9), (home / "said").read_text()[-4000:]
    return out.strip()


def _kill_at_random(bootstrap: str, home: Path, rng: random.Random) -> str:
    """Kills driver and JVM together, from the middle of their start on."""
    child = _start(bootstrap, home, "forever")
    time.sleep(rng.uniform(3, 15))
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert child.returncode in (-signal.SIGKILL, 9), (home / "said").read_text()[-4000:]
    return "at random"


def _rows(home: Home, table: str, order: tuple[str, ...]) -> list[dict[str, Any]]:
    """A table's rows without the batch that wrote them, which is a matter of the clock behind a table."""
    found: pa.Table = DeltaTable(str(home.table(table))).to_pyarrow_table()
    if table.startswith("gold."):
        found = found.drop_columns(["_batch"])
    return sorted(found.to_pylist(), key=lambda row: (*(str(row[name]) for name in order), repr(row)))


def _totals(home: Home) -> dict[str, dict[str, dict[str, int]]]:
    """What became of all rows; when a waiting row expires is a matter of the clock, too."""
    found = {}
    for audit in audit_home(home):
        for terms in audit.totals.values():
            terms["waiting"] = terms.get("waiting", 0) + terms.pop("expired", 0)
        found[audit.table] = audit.totals
    return found


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
