"""`headwater setup`, `doctor` and `config show`, and Java as they find it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.stack.classes import class_archive
from headwater.stack.jars import locked_jars
from headwater.stack.java import find_java
from headwater.stack.places import jars_dir

pytest.importorskip("pyspark")

pytestmark = pytest.mark.story


def test_setup_when_all_is_there_fetches_nothing(headwater: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy that nobody listens on: anything that wanted the network would fail.
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    done = headwater("setup", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["fetched"] is False
    assert told["classes"] == str(class_archive(os.environ, find_java(os.environ)))
    assert headwater("setup").stdout == ""


def test_setup_without_a_network_is_one_sentence_and_leaves_nothing_half_done(
    headwater: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_java(os.environ)
    folder = tmp_path / "jars"
    folder.mkdir()
    half = folder / locked_jars()[0].name
    half.write_bytes(b"PK")
    monkeypatch.setenv("HEADWATER_JARS", str(folder))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    done = headwater("setup")
    assert done.returncode == 4
    *progress, message = done.stderr.splitlines()
    assert all(line.startswith("fetching the jars: 0 of ") for line in progress)
    assert message.startswith("headwater: the jars could not be fetched (")
    assert message.endswith("check the network and the proxy settings, then run headwater setup again")
    assert sorted(path.name for path in folder.iterdir()) == [".lock", half.name]
    doctor = {each["subject"]: each for each in json.loads(headwater("doctor", "--json").stdout)}
    assert doctor["jars"]["state"] == "wrong"
    assert f"{half.name} is half fetched" in doctor["jars"]["detail"]


def test_doctor_tells_which_java_and_jars(headwater: Any) -> None:
    done = headwater("doctor", "--home", "home", "--json")
    found = {each["subject"]: each for each in json.loads(done.stdout)}
    java = find_java(os.environ)
    assert found["java"]["detail"] == f"Java {java.version} from {java.origin}: {java.home}"
    assert found["jars"]["detail"] == f"7 verified in {jars_dir(os.environ)}"
    assert found["pyspark"]["state"] == "ok"


def test_config_show_gives_values_and_sources(headwater: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("HEADWATER_SPARK_CORES", "1")
    done = headwater("config", "show", "--json")
    shown = {each["key"]: each for each in json.loads(done.stdout)}
    assert shown["spark.cores"] == {"key": "spark.cores", "value": 1, "source": "HEADWATER_SPARK_CORES"}
    assert shown["client.sasl_password"]["value"] == "********"
    assert "hunter2" not in done.stdout + headwater("config", "show").stdout


def test_config_flag_names_the_file(headwater: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[stack]\nprot = 1\n")
    done = headwater("--config", "mine.toml", "config", "show")
    assert (done.returncode, done.stderr) == (
        2,
        "headwater: mine.toml line 2: there is no setting stack.prot: did you mean stack.port?\n",
    )
