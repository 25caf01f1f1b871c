"""A cluster is looked at before PySpark's JVM is started."""

import socket

import pytest

from headwater.errors import EXIT_DEPENDENCY, DependencyError
from headwater.stack.cluster import require_master


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://127.0.0.1", "spark://127.0.0.1:none"])
def test_master_that_nobody_answers_at_is_told_at_once(master: str) -> None:
    with pytest.raises(DependencyError, match=f"no Spark master answers at {master}: start one") as refusal:
        require_master(master)
    assert refusal.value.exit_code == EXIT_DEPENDENCY


@pytest.mark.parametrize("master", ["spark://127.0.0.1:{port}", "spark://127.0.0.1:1,127.0.0.1:{port}"])
def test_one_master_that_answers_is_enough(master: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_master(master.format(port=server.getsockname()[1]))
    require_master("local[2]")
    require_master("yarn")
