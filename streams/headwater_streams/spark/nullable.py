"""Types as a table has them: everything in them may be NULL.

Spark knows of `collect_list` that its array holds no NULL; what it reads back from a file it does not know so of, and
it refuses to cast the one to the other.
"""

from typing import TypeVar

from pyspark.sql import types as T

Kind = TypeVar("Kind", bound=T.DataType)


def as_nullable(kind: Kind) -> Kind:
    """The type with NULL allowed wherever it could be.

    Example:
        >>> as_nullable(T.ArrayType(T.IntegerType(), containsNull=False)).containsNull
        True
    """
    made: T.DataType = kind
    if isinstance(kind, T.ArrayType):
        made = T.ArrayType(as_nullable(kind.elementType))
    elif isinstance(kind, T.MapType):
        made = T.MapType(as_nullable(kind.keyType), as_nullable(kind.valueType))
    elif isinstance(kind, T.StructType):
        made = T.StructType(
            [T.StructField(f.name, as_nullable(f.dataType), metadata=f.metadata) for f in kind.fields]
        )
    return made  # type: ignore[return-value] # the same class as it was given
