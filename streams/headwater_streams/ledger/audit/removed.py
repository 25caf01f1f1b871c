"""Tables that are gone while the checkpoint of their job still goes on behind their rows."""

from headwater_streams.ledger.audit.found import TableAudit
from headwater_streams.runtime.facts import facts_of_last_run
from headwater_streams.runtime.home import Home
from headwater_streams.sinks.target import declared_name


def removed_tables(home: Home) -> list[TableAudit]:
    """What is found of tables that the newest checkpoint of a job speaks of, and that are not there."""
    there = set(home.tables())
    found = []
    for folder in sorted((home.root / "checkpoints").glob("*")):
        job = folder.name
        facts = facts_of_last_run(home.checkpoint(job, home.last_generation(job)))
        if facts is None:
            continue
        for table, known in facts.targets.items():
            if known is not None and table not in there:
                told = (
                    f"{table}: its folder is gone, and the job {job!r} goes on behind the rows that it had; put it "
                    f"back, or make it again: headwater jobs rebuild {declared_name(job)}"
                )
                found.append(TableAudit(table, job, facts.kind, findings=[told]))
    return found
