"""Each private name of Spark, Delta, PySpark and py4j that the library uses: what for, and what there is without it.

None of them is promised to be there in the next version. Whoever moves to another Spark runs
`tests/unit/test_private_names.py` first: it looks for each in the files of the classes, in seconds and without a JVM.
What of Java, and of Scala's own library, is used is public, and not listed.
"""

from dataclasses import dataclass

_SQL = "org.apache.spark.sql"
_CATALYST = f"{_SQL}.catalyst"
_STREAMING = f"{_SQL}.execution.streaming"
_DELTA = f"{_SQL}.delta"
_NO_WAY = "none: what it gives is in no public answer"


@dataclass(frozen=True, kw_only=True)
class PrivateName:
    """A class of the JVM.

    Attributes:
        owner: Its full name; of a Scala `object` with the dollar sign.
        members: What is used of it, `name/arguments`, `new/arguments` a constructor, a name alone a field.
        use: What for.
        plainly: How the same is had without it, more slowly; or why it is not.
    """

    owner: str
    members: tuple[str, ...]
    use: str
    plainly: str = _NO_WAY


@dataclass(frozen=True, kw_only=True)
class PrivatePython:
    """What PySpark or py4j have in Python.

    Attributes:
        owner: A module, or a class of one.
        members: Its names, or attributes of its instances.
        use: What for.
        plainly: As of a `PrivateName`.
    """

    owner: str
    members: tuple[str, ...]
    use: str
    plainly: str = _NO_WAY


@dataclass(frozen=True, kw_only=True)
class PrivateText:
    """A text that Spark knows something by.

    Attributes:
        owner: The class of the JVM that has it.
        text: The text.
        use: What for.
    """

    owner: str
    text: str
    use: str


OF_THE_JVM = (
    PrivateName(
        owner=f"{_SQL}.classic.Dataset",
        members=("queryExecution/0", "logicalPlan/0", "schema/0"),
        use="a frame's plan, which the rules about a job's function read",
        plainly="none: explain() tells it as a text that is for people",
    ),
    PrivateName(
        owner=f"{_SQL}.execution.QueryExecution",
        members=("analyzed/0", "toRdd/0"),
        use="the analysed plan; a frame's rows, computed and kept nowhere",
        plainly="rows are written to Spark's `noop`, which logs what a row raises",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.LogicalPlan",
        members=(
            "children/0",
            "collectLeaves/0",
            "expressions/0",
            "fastEquals/1",
            "isStreaming/0",
            "metadataOutput/0",
            "nodeName/0",
            "output/0",
            "outputOrdering/0",
            "outputSet/0",
            "references/0",
            "setTagValue/2",
        ),
        use="a plan's nodes",
        plainly=(
            "a hidden column is looked for by selecting it, and what a function gives is observed anew; for the rules "
            "about a function none"
        ),
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.Project",
        members=("projectList/0", "child/0"),
        use="what a projection's columns are made of",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.Project$",
        members=("hiddenOutputTag/0",),
        use="coordinates that go with rows unseen by select(*)",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.CollectMetrics",
        members=("name/0", "child/0"),
        use="the name of an observation in a plan",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.EventTimeWatermark",
        members=("nodeId/0",),
        use="what Spark knows an input's watermark by",
    ),
    PrivateName(
        owner=f"{_SQL}.execution.LogicalRDD",
        members=("rdd/0",),
        use="rows that were read once are let go of at once",
        plainly="Spark lets go of them when Python's garbage collector does",
    ),
    PrivateName(
        owner=f"{_CATALYST}.optimizer.ColumnPruning$",
        members=("apply/1",),
        use="which columns of an input a function does not use",
    ),
    PrivateName(
        owner=f"{_CATALYST}.analysis.UnsupportedOperationChecker$",
        members=("checkForStreaming/2",),
        use="what a stream cannot do is said when a job is planned",
        plainly="Spark says it when the query is started",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Expression",
        members=(
            "children/0",
            "dataType/0",
            "nodeName/0",
            "references/0",
            "sql/0",
            "toString/0",
            "withNewChildren/1",
        ),
        use="what stands in a condition, and in what keeps state",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Alias",
        members=("child/0", "exprId/0"),
        use="which column another is by a second name",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.AttributeReference",
        members=("exprId/0", "name/0"),
        use="what a column is known by on its way up a plan",
    ),
    PrivateName(owner=f"{_CATALYST}.expressions.ExprId", members=("id/0",), use="the same"),
    PrivateName(
        owner=f"{_CATALYST}.expressions.AttributeSet",
        members=("toSeq/0", "subsetOf/1"),
        use="the columns that an expression names",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.aggregate.AggregateExpression",
        members=("aggregateFunction/0", "filter/0"),
        use="what an aggregate takes of a row, so that a row that it raises for is found when it comes",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Cast$",
        members=("canUpCast/2",),
        use="which casts cannot raise",
        plainly="each cast may raise, so that each condition with one is guarded",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.TryEval",
        members=("new/1",),
        use="a condition that raises for a row is NULL for it",
        plainly="none: Spark's try_ functions are of single operations",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Literal",
        members=("new/2",),
        use="numbers in a stream's plan that are others in each batch",
    ),
    PrivateName(
        owner=f"{_CATALYST}.util.GenericArrayData",
        members=("new/1", "setLong/2"),
        use="the same",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.objects.Invoke",
        members=("new/8",),
        use="a text that is searched in long strides, as Java's String",
        plainly="none is written: contains and instr go from byte to byte",
    ),
    PrivateName(
        owner=f"{_CATALYST}.FunctionIdentifier",
        members=("new/1",),
        use="whether a function of SQL is an aggregate",
    ),
    PrivateName(
        owner=f"{_CATALYST}.analysis.FunctionRegistry",
        members=("lookupFunction/1",),
        use="the same",
    ),
    PrivateName(owner=f"{_CATALYST}.expressions.ExpressionInfo", members=("getGroup/0",), use="the same"),
    PrivateName(
        owner=f"{_CATALYST}.analysis.UnresolvedFunction",
        members=("nameParts/0",),
        use="the same",
    ),
    PrivateName(
        owner=f"{_SQL}.classic.ColumnNodeToExpressionConverter$",
        members=("apply/1",),
        use="a column as Catalyst's expression",
    ),
    PrivateName(owner=f"{_SQL}.Column", members=("node/0",), use="the same"),
    PrivateName(
        owner=f"{_SQL}.classic.ExpressionUtils",
        members=("column/1",),
        use="an expression as a column",
    ),
    PrivateName(
        owner=f"{_SQL}.types.ObjectType",
        members=("new/1",),
        use="the type of a text as Java's String",
    ),
    PrivateName(
        owner=f"{_SQL}.classic.SparkSession",
        members=(
            "cloneSession/0",
            "conf/0",
            "createDataFrame/2",
            "internalCreateDataFrame/3",
            "parseDataType/1",
            "sessionState/0",
            "setActiveSession/1",
            "streams/0",
        ),
        use="frames and types that are made without a way through Python, and the session's registries",
        plainly="a frame without rows is made by PySpark's createDataFrame; for the others none",
    ),
    PrivateName(
        owner=f"{_SQL}.internal.SessionState",
        members=("functionRegistry/0",),
        use="whether a function of SQL is an aggregate",
    ),
    PrivateName(
        owner=f"{_SQL}.classic.StreamingQueryManager",
        members=("get/1",),
        use="a query, while it runs a batch",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.StreamingQueryWrapper",
        members=("streamingQuery/0", "recentProgress/0"),
        use="its execution; accounts of its batches without taking all apart",
        plainly="StreamingQuery.recentProgress takes all of them apart; for the execution none",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.MicroBatchExecution",
        members=("lastExecution/0", "watermarkTracker/0"),
        use="what was observed in a batch, before its commit",
        plainly="none: PySpark's observations come when the batch is over, and the commit is in it",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.IncrementalExecution",
        members=("executedPlan/0", "observedMetrics/0"),
        use="the same",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.WatermarkTracker",
        members=("currentWatermark/0", "updateWatermark/1", "operatorToWatermarkMap"),
        use="the watermark of each input, kept over a query's restart",
    ),
    PrivateName(
        owner=f"{_STREAMING}.checkpointing.OffsetSeqMetadata$",
        members=("apply/3",),
        use="a first batch that begins before all history",
    ),
    PrivateName(
        owner=f"{_STREAMING}.checkpointing.OffsetSeqMetadata",
        members=("json/0",),
        use="the same",
    ),
    PrivateName(
        owner=f"{_DELTA}.DeltaLog$",
        members=("forTable/2", "clearCache/0"),
        use="Delta's transaction",
        plainly="none; logs that are not cleared go an hour after their last use",
    ),
    PrivateName(
        owner=f"{_DELTA}.DeltaLog",
        members=("getSnapshotAt/4", "startTransaction/0"),
        use="the same; the files of a version with their statistics",
    ),
    PrivateName(
        owner=f"{_DELTA}.Snapshot",
        members=("allFiles/0", "metadata/0", "setTransactions/0"),
        use="the files of a version, its columns and marks",
    ),
    PrivateName(
        owner=f"{_DELTA}.OptimisticTransaction",
        members=(
            "commit/2",
            "metadata/0",
            "readTxn/0",
            "readVersion/0",
            "readWholeTable/0",
            "updateMetadata/2",
            "writeFiles/1",
        ),
        use="the files of a batch are written, looked at, and committed with a mark and the ledger entry",
        plainly="none: a writer of PySpark writes and commits in one",
    ),
    PrivateName(
        owner=f"{_DELTA}.DeltaOperations$StreamingUpdate",
        members=("new/4",),
        use="what Delta's history says of a batch",
    ),
    PrivateName(
        owner=f"{_DELTA}.DeltaOperations$Write",
        members=("new/9",),
        use="what Delta's history says of a swap",
    ),
    PrivateName(
        owner=f"{_DELTA}.actions.Action$",
        members=("fromJson/1",),
        use="actions as Delta's log has them",
    ),
    PrivateName(owner=f"{_DELTA}.actions.Action", members=("json/0",), use="the same"),
    PrivateName(
        owner=f"{_DELTA}.actions.Metadata",
        members=("schemaString/0",),
        use="a table's columns",
    ),
    PrivateName(
        owner=f"{_DELTA}.actions.SetTransaction",
        members=("appId/0", "version/0"),
        use="a table's marks",
    ),
    PrivateName(
        owner="org.apache.avro.Schema$Parser",
        members=("new/0", "parse/1"),
        use="whether a writer's schema can be read as another",
    ),
    PrivateName(
        owner="org.apache.avro.SchemaCompatibility",
        members=("checkReaderWriterCompatibility/2",),
        use="the same",
    ),
    PrivateName(
        owner="org.apache.spark.SparkContext",
        members=("isLocal/0", "statusTracker/0"),
        use="whether a cluster has an executor",
        plainly="it is taken to have one, and a job waits without a word",
    ),
    PrivateName(
        owner="org.apache.spark.sql.api.python.PythonSQLUtils",
        members=(),
        use="PySpark asks for it with each column; it is asked for once",
        plainly="PySpark asks",
    ),
    PrivateName(
        owner="org.apache.spark.api.python.PythonUtils",
        members=("toSeq/1",),
        use="a list as Scala's Seq",
    ),
)

OF_PYTHON = (
    PrivatePython(
        owner="pyspark.sql.classic.dataframe.DataFrame",
        members=("_jdf",),
        use="a frame of the JVM",
    ),
    PrivatePython(owner="pyspark.sql.classic.column.Column", members=("_jc",), use="a column of the JVM"),
    PrivatePython(
        owner="pyspark.sql.session.SparkSession",
        members=("_jsparkSession", "_jvm"),
        use="the session of the JVM, and its classes",
    ),
    PrivatePython(
        owner="pyspark.core.context.SparkContext",
        members=("_gateway", "_jsc"),
        use="py4j's way to the JVM, and the JVM's process",
    ),
    PrivatePython(
        owner="pyspark.sql.streaming.query.StreamingQuery",
        members=("_jsq",),
        use="accounts of batches without taking all apart",
        plainly="StreamingQuery.recentProgress",
    ),
    PrivatePython(
        owner="pyspark.util",
        members=("handle_worker_exception",),
        use="an error of any text arrives from a Python worker",
        plainly="a batch whose function raises a text that UTF-8 cannot have does not end",
    ),
    PrivatePython(
        owner="pyspark.serializers",
        members=("SpecialLengths", "write_int", "write_with_length"),
        use="the same",
    ),
    PrivatePython(owner="pyspark.daemon", members=("manager",), use="the same"),
    PrivatePython(
        owner="pyspark.java_gateway",
        members=("Popen",),
        use="a JVM that ignores SIGTERM, and ends with Python",
    ),
    PrivatePython(
        owner="pyspark.sql.pandas.types",
        members=("to_arrow_type",),
        use="what a reader of Protobuf gives Spark",
    ),
    PrivatePython(
        owner="py4j.java_gateway",
        members=("JavaClass", "JavaMember"),
        use="classes that are asked for once",
    ),
    PrivatePython(
        owner="py4j.java_gateway.JavaClass",
        members=("_fqn", "_gateway_client"),
        use="the same",
    ),
    PrivatePython(
        owner="py4j.clientserver",
        members=("SHUTDOWN_FINALIZER_WORKER",),
        use="many objects are let go of by one call",
    ),
    PrivatePython(
        owner="py4j.clientserver.JavaClient",
        members=("_get_connection", "_give_back_connection", "finalizer_deque"),
        use="the same",
    ),
)

TEXTS = (
    PrivateText(
        owner=f"{_CATALYST}.util.package$",
        text="__metadata_col",
        use="coordinates that go with rows unseen by select(*)",
    ),
    PrivateText(
        owner=f"{_CATALYST}.plans.logical.EventTimeWatermark$",
        text="spark.watermarkDelayMs",
        use="a window's bounds that keep the watermark of the time that they are of",
    ),
    PrivateText(
        owner=f"{_STREAMING}.runtime.StreamExecution$",
        text="sql.streaming.queryId",
        use="a query, while it runs a batch",
    ),
    PrivateText(
        owner=f"{_SQL}.internal.SQLConf$",
        text="spark.sql.streaming.internal.stateStore.partitions",
        use="a first batch that begins before all history",
    ),
)
