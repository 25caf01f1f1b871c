"""What Avro's own library, which comes with Spark, says of schemas."""

from pyspark.sql import SparkSession

from headwater_streams.spark.gateway import jvm_class


def avro_incompatibilities(spark: SparkSession, reader: str, writer: str) -> list[str]:
    """Why values of a writer's schema cannot be read as a reader's; empty where they can.

    Raises:
        Py4JJavaError: One of them is no schema.
    """
    parser = jvm_class(spark, "org.apache.avro.Schema$Parser")
    compatibility = jvm_class(spark, "org.apache.avro.SchemaCompatibility")
    result = compatibility.checkReaderWriterCompatibility(parser().parse(reader), parser().parse(writer))
    if str(result.getType()) == "COMPATIBLE":
        return []
    reasons = result.getResult().getIncompatibilities()
    return [str(reasons.get(place).getMessage()) for place in range(reasons.size())]
