"""What the audit says of tables that are gone under the checkpoints of their jobs."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from headwater.cli import main
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger import audit
from headwater_streams.ledger.audit import audit_home
from headwater_streams.runtime.facts import keep_facts
from headwater_streams.spark.run_facts import RunFacts
from headwater_streams.storage.home import Home

CHAIN, STEP, INGEST = "gold.chain", "gold.chain__step_1", "gold.chain__step_1__ingest_clicks"
OTHER = "gold.chain_of_others"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A chain of two operators, and another job, of which all that is left are the chain's own two tables."""
    found = Home(tmp_path)
    for table in (CHAIN, STEP):
        entry = LedgerEntry(job=table.partition(".")[2], generation=1, batch=0, table=table, kind="window")
        write_deltalake(
            str(found.table(table)),
            pa.table({"_batch": pa.array([], pa.int64()), "_rows": pa.array([], pa.int64())}),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
        )
    for table in (CHAIN, STEP, INGEST, OTHER):
        checkpoint = found.checkpoint(table.partition(".")[2], 1)
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / "0").touch()
        facts = RunFacts(
            spark="4.1.3",
            kind="row",
            targets={table: "an-id"},
            keys=(),
            mode="append",
            inputs={},
            operator="",
            state=(),
            columns={},
            shuffle_partitions="2",
            state_store="x.RocksDB",
            dedup="None",
            fingerprint="aa",
        )
        keep_facts(checkpoint, facts)
    return found


def test_audit_of_a_chain_by_its_name_tells_that_a_table_before_it_is_gone(home: Home) -> None:
    def told_gone(*tables: str) -> list[str]:
        found = [sentence for each in audit_home(home, tables) for sentence in each.findings]
        return [sentence.partition(":")[0] for sentence in found if "its folder is gone" in sentence]

    assert told_gone() == [INGEST, OTHER]
    assert told_gone(CHAIN) == told_gone(STEP) == told_gone(INGEST) == [INGEST]
    assert told_gone(OTHER) == [OTHER]


def test_audit_looks_for_tables_that_are_gone_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked, look = [], audit.removed_tables
    monkeypatch.setattr(audit, "removed_tables", lambda where: looked.append(where) or look(where))
    for words in ([], [CHAIN]):
        looked.clear()
        assert main(["audit", *words, "--home", str(home.root)]) == 1
        assert len(looked) == 1
        assert f"{INGEST}: its folder is gone" in capsys.readouterr().out
