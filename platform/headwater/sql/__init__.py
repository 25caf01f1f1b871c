"""SQL over a home's Delta tables by their names, in DuckDB without a JVM or in Spark.

`SqlSession` is the API; `headwater sql` prints what it answers. Tables are found under
`<home>/tables/<schema>/<name>`; each statement opens those that it names, pinned at their newest version, so
that it sees one state of each while jobs go on writing.
"""

from headwater.sql.catalog import Catalog, TableRef
from headwater.sql.errors import SqlError, UnknownTableError
from headwater.sql.result import Result
from headwater.sql.session import SqlSession

__all__ = ["Catalog", "Result", "SqlError", "SqlSession", "TableRef", "UnknownTableError"]
