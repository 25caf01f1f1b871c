"""Types as a table has them: everything in them may be NULL.

Spark knows that the array of `collect_list` holds no NULL. It does not know that of an array that it reads from a file,
and refuses to cast the one to the other.
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
    nullable: T.DataType = kind
    if isinstance(kind, T.ArrayType):
        nullable = T.ArrayType(as_nullable(kind.elementType))
    elif isinstance(kind, T.MapType):
        nullable = T.MapType(as_nullable(kind.keyType), as_nullable(kind.valueType))
    elif isinstance(kind, T.StructType):
        nullable = T.StructType(
            [T.StructField(f.name, as_nullable(f.dataType), metadata=f.metadata) for f in kind.fields]
        )
    return nullable  # type: ignore[return-value] # of the same class as `kind`
