"""Tables that are gone, or have lost commits, while the checkpoint of their job still goes on behind their rows."""

from pathlib import Path

from headwater_streams.base.target import declared_name
from headwater_streams.delta.marks import generation_id, last_batch
from headwater_streams.ledger.audit.table_audit import TableAudit
from headwater_streams.ledger.log import last_entry
from headwater_streams.spark.checkpoint import first_lost, lost_batch_message
from headwater_streams.spark.run_facts import RunFacts, facts_of_last_run
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.files import exists, matching
from headwater_streams.storage.home import Home


def removed_tables(home: Home) -> list[TableAudit]:
    """Findings about tables that the newest checkpoint of a job names and that do not exist."""
    existing = set(home.tables())
    audits = []
    for folder in matching(home.root / "checkpoints"):
        job = folder.name
        try:
            facts = facts_of_last_run(home.checkpoint(job, home.last_generation(job)))
        except DamagedFileError as error:
            finding = f"{error}; until then nobody can say whether all tables of the job are there"
            audits.append(TableAudit(f"checkpoints/{job}", job, "", findings=[finding]))
            continue
        if facts is None:
            continue
        audits += _lost(home, job, facts)
        for table, table_id in facts.targets.items():
            if table_id is not None and table not in existing:
                has_folder = exists(home.table(table) / "_delta_log")
                what = "all commits of its log are gone" if has_folder else "its folder is gone"
                finding = (
                    f"{table}: {what}, and the job {job!r} goes on behind the rows that it had; put it "
                    f"back, or make it again: headwater jobs rebuild {declared_name(job)}"
                )
                audits.append(TableAudit(table, job, facts.kind, findings=[finding]))
    return audits


def _lost(home: Home, job: str, facts: RunFacts) -> list[TableAudit]:
    """The job's table, where it has lost its newest commits, as after a power cut."""
    name = next(iter(facts.targets))
    table = home.table(name)
    if not has_versions(table):
        return []
    try:
        generation = max(1, last_batch(table, generation_id(job)))
        lost = first_lost(home.checkpoint(job, generation), _last_of(table, job, generation))
        # A job that runs may have committed the batch, and Spark have noted it, since the table was looked at.
        done = _last_of(table, job, generation)
    except DamagedFileError:
        return []  # the audit of the table reports it
    if lost is None or lost <= done:
        return []
    finding = f"{lost_batch_message(job, name, lost, done)}; to read again what it had read: headwater jobs renew {job}"
    return [TableAudit(name, job, facts.kind, findings=[finding])]


def _last_of(table: Path, job: str, generation: int) -> int:
    last = last_entry(table, job, generation)
    return -1 if last is None else last.batch
