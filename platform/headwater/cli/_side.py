"""What `headwater late` and `headwater quarantine` share: a look at the side table of a table."""

from pathlib import Path

from headwater.cli._common import console, print_json
from headwater.errors import UsageError


def show_side(home: Path, table: str, suffix: str, limit: int, order: str, json_output: bool) -> int:
    """Prints the newest rows of `<table><suffix>`; says how many these are.

    Raises:
        UsageError: There is no such table.
    """
    import json
    import sys

    from headwater.sql.output import json_text, print_table
    from headwater.sql.session import SqlSession
    from headwater_streams.runtime.home import Home

    name = table if table.endswith(suffix) else table + suffix
    there = [each for each in Home(home).tables() if each.endswith(suffix)]
    if name not in there:
        raise UsageError(f"there is no table {name}; there are {', '.join(there) or 'none of its kind'}")
    schema, _, bare = name.partition(".")
    with SqlSession(home) as session:
        result = session.run(f'SELECT * FROM "{schema}"."{bare}" ORDER BY {order} LIMIT {limit}')
    if json_output:
        print_json([json.loads(json_text(row)) for row in result.objects()])
    elif len(result):
        print_table(result, console(), max_rows=limit)
    else:
        print(f"{name} is empty", file=sys.stderr)
    return len(result)
