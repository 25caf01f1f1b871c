"""Each private name of Spark, Delta, PySpark and py4j that the library uses: what for, and what replaces it.

The next version may lack any of them. Whoever moves to another Spark runs `tests/unit/test_private_names.py` first: it
looks for each in the files of the classes, in seconds and without a JVM. Names of Java and of Scala's own library are
public, and not listed.
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
        owner: Its full name; that of a Scala `object` has the dollar sign.
        members: Its members in use: `name/arguments`, `new/arguments` for a constructor, a name alone for a field.
        use: What for.
        plainly: What does the same without it, more slowly; or why nothing does.
    """

    owner: str
    members: tuple[str, ...]
    use: str
    plainly: str = _NO_WAY


@dataclass(frozen=True, kw_only=True)
class PrivatePython:
    """A private name of PySpark or py4j in Python.

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
    """A text that has a meaning to Spark.

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
        members=("queryExecution/0", "logicalPlan/0", "ofRows/2", "schema/0", "sparkSession/0"),
        use="a frame's plan, which the rules about a job's function read; a frame of a plan that was built",
        plainly="none: explain() gives a text for people",
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
            "containsPattern/1",
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
            "withNewChildren/1",
        ),
        use="a plan's nodes",
        plainly=(
            "a hidden column is found by selecting it, and a function's result is observed again; for rules about a "
            "function none"
        ),
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.Project",
        members=("new/2", "projectList/0", "child/0"),
        use="what a projection's columns are made of",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.Generate",
        members=(
            "copy/6",
            "generator/0",
            "generatorOutput/0",
            "outer/0",
            "qualifier/0",
            "unrequiredChildIndex/0",
        ),
        use="the place of each row that explode and its kin make of a record",
    ),
    PrivateName(
        owner=f"{_CATALYST}.trees.TreePattern$",
        members=("GENERATE/0",),
        use="whether a function explodes",
        plainly="the shape of its plan tells, in dozens of calls",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.PosExplode",
        members=("new/1",),
        use="the places, where explode and inline do not give them",
    ),
    PrivateName(owner=f"{_CATALYST}.expressions.Inline", members=("child/0",), use="the same"),
    PrivateName(owner=f"{_CATALYST}.expressions.Explode", members=("child/0",), use="the same"),
    PrivateName(
        owner=f"{_CATALYST}.expressions.GetStructField",
        members=("new/3",),
        use="the columns of inline, whose places PosExplode gives",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.NamedExpression$",
        members=("newExprId/0",),
        use="the id of a column of places",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.Project$",
        members=("hiddenOutputTag/0",),
        use="coordinates that travel with rows and that select(*) leaves out",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.CollectMetrics",
        members=("name/0", "child/0"),
        use="the name of an observation in a plan",
    ),
    PrivateName(
        owner=f"{_CATALYST}.plans.logical.EventTimeWatermark",
        members=("nodeId/0",),
        use="the id by which Spark keeps an input's watermark",
    ),
    PrivateName(
        owner=f"{_SQL}.execution.LogicalRDD",
        members=("rdd/0",),
        use="rows that were read once are released at once",
        plainly="Spark releases them when Python's garbage collector does",
    ),
    PrivateName(
        owner=f"{_CATALYST}.optimizer.ColumnPruning$",
        members=("apply/1",),
        use="which columns of an input a function does not use",
    ),
    PrivateName(
        owner=f"{_CATALYST}.analysis.UnsupportedOperationChecker$",
        members=("checkForStreaming/2",),
        use="a plan that cannot be streamed is refused when the job is planned",
        plainly="Spark refuses it when the query is started",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Expression",
        members=(
            "children/0",
            "dataType/0",
            "eval/1",
            "foldable/0",
            "nodeName/0",
            "references/0",
            "sql/0",
            "toString/0",
            "withNewChildren/1",
        ),
        use="the parts of a condition, and of nodes that keep state",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Alias",
        members=("new/6", "child/0", "exprId/0", "toAttribute/0"),
        use="which column another one renames",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.AttributeReference",
        members=("new/6", "exprId/0", "name/0", "qualifier/0"),
        use="the id of a column on its way up a plan",
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
        use="the arguments of an aggregate, so that a row for which one raises is found when it comes",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.Cast$",
        members=("canUpCast/2",),
        use="which casts cannot raise",
        plainly="each cast may raise, so each condition with one is guarded",
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
        use="numbers in a stream's plan that change from batch to batch",
    ),
    PrivateName(
        owner=f"{_CATALYST}.util.GenericArrayData",
        members=("new/1", "setLong/2"),
        use="the same",
    ),
    PrivateName(
        owner=f"{_CATALYST}.expressions.objects.Invoke",
        members=("new/8",),
        use="a text as Java's String, whose search is vectorised",
        plainly="none is written: contains and instr go from byte to byte",
    ),
    PrivateName(
        owner=f"{_CATALYST}.analysis.UnresolvedFunction",
        members=("nameParts/0",),
        use="whether a function of SQL is an aggregate",
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
            "setActiveSession/1",
            "streams/0",
        ),
        use="frames and types that are made without Python",
        plainly="a frame without rows is made by PySpark's createDataFrame; for the others none",
    ),
    PrivateName(
        owner=f"{_SQL}.classic.StreamingQueryManager",
        members=("get/1",),
        use="a query, while it runs a batch",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.StreamingQueryWrapper",
        members=("streamingQuery/0", "recentProgress/0"),
        use="its execution; accounts of its batches without parsing all of them",
        plainly="StreamingQuery.recentProgress parses all of them; for the execution none",
    ),
    PrivateName(
        owner=f"{_STREAMING}.runtime.MicroBatchExecution",
        members=("lastExecution/0", "watermarkTracker/0"),
        use="the observations of a batch, before its commit",
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
        plainly="none; logs that are not cleared are dropped an hour after their last use",
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
        use="the files of a batch are written, checked, and committed with a mark and the ledger entry",
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
        plainly="it is assumed to have one, and a job waits silently",
    ),
    PrivateName(
        owner="org.apache.spark.sql.api.python.PythonSQLUtils",
        members=(),
        use="PySpark looks it up for each column; it is looked up once",
        plainly="PySpark looks it up each time",
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
        use="accounts of batches without parsing all of them",
        plainly="StreamingQuery.recentProgress",
    ),
    PrivatePython(
        owner="pyspark.util",
        members=("handle_worker_exception",),
        use="errors with any text arrive from a Python worker",
        plainly="a batch whose function raises a text that UTF-8 cannot encode does not end",
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
        owner="py4j.java_gateway",
        members=("JavaClass", "JavaMember"),
        use="classes that are looked up once",
    ),
    PrivatePython(
        owner="py4j.java_gateway.JavaClass",
        members=("_fqn", "_gateway_client"),
        use="the same",
    ),
    PrivatePython(
        owner="py4j.clientserver",
        members=("SHUTDOWN_FINALIZER_WORKER",),
        use="many objects are released by one call",
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
        use="coordinates that travel with rows and that select(*) leaves out",
    ),
    PrivateText(
        owner=f"{_CATALYST}.plans.logical.EventTimeWatermark$",
        text="spark.watermarkDelayMs",
        use="a window's bounds that keep the watermark of their time",
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
