"""Job modules: what is wrong with one is one sentence with its place."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_jobs

_HEAD = """
import headwater as hw
clicks = hw.topic("clicks", schema="who STRING")
"""
_JOB = """
@hw.job(target=hw.delta("silver.{table}"){more})
def {name}(clicks):
    return clicks
"""


def _module(folder: Path, text: str, name: str = "jobs.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_load_jobs_good_module_binds_inputs_by_name(tmp_path: Path) -> None:
    (job,) = load_jobs([_module(tmp_path, _HEAD + _JOB.format(table="clicks", more="", name="clean"))])
    assert (job.name, job.target.name, job.inputs["clicks"].name) == ("clean", "silver.clicks", "clicks")
    assert len(job.fingerprint) == 16


WRONG = {
    "syntax error": (_HEAD + "def broken(:\n    pass\n", r"jobs\.py, line 4: "),
    "two jobs of one name": (
        _HEAD + _JOB.format(table="a", more="", name="clean") + _JOB.format(table="b", more="", name="clean"),
        r"two jobs are named 'clean'.*line 5 and .*line 9",
    ),
    "two writers of one table": (
        _HEAD + _JOB.format(table="a", more="", name="one") + _JOB.format(table="a", more="", name="two"),
        r"'one' and 'two' both write silver\.a",
    ),
    "no job": (_HEAD, r"no job in it"),
    "unknown input": (
        _HEAD + _JOB.format(table="a", more="", name="one").replace("(clicks):", "(visits):"),
        r"no input for the parameter 'visits'; the module's inputs are clicks",
    ),
    "bad duration": (
        'import headwater as hw\nx = hw.topic("x", schema="a INT", event_time="a", watermark="soon")\n',
        r"jobs\.py, line 2: .*'soon' is not a duration",
    ),
    "bad table name": (
        _HEAD + '@hw.job(target=hw.delta("silver"))\ndef one(clicks):\n    return clicks\n',
        "schema.table",
    ),
    "missing import": ("import not_installed_here\n", "imports 'not_installed_here', which is not installed"),
    "update without keys": (
        _HEAD + '@hw.job(target=hw.delta("a.b", mode="update"))\ndef one(clicks):\n    return clicks\n',
        "needs keys",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_load_jobs_wrong_module_is_one_sentence(tmp_path: Path, case: str) -> None:
    text, message = WRONG[case]
    with pytest.raises(JobDefinitionError, match=message) as caught:
        load_jobs([_module(tmp_path, text)])
    assert "\n" not in str(caught.value)


def test_load_jobs_missing_module_and_missing_job_are_named(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"no job module 'nowhere\.py'"):
        load_jobs(["nowhere.py"])
    module = _module(tmp_path, _HEAD + _JOB.format(table="a", more="", name="one"))
    with pytest.raises(JobDefinitionError, match=r"no job 'two'; its jobs are one"):
        load_jobs([f"{module}:two"])


SCHEMA = '{"type": "record", "name": "Click", "fields": [{"name": "who", "type": "string"}]}'
BY_FORMAT = {
    "jobs.py": """
import headwater as hw
clicks = hw.topic("clicks", format=FORMAT)

@hw.job(target=hw.delta("silver.clicks"))
def clean(clicks):
    return clicks
""",
    "jobs.sql": "CREATE STREAMING TABLE silver.clicks AS SELECT who FROM topic('clicks', format => FORMAT)",
}


@pytest.mark.parametrize("name", BY_FORMAT)
def test_load_jobs_files_of_a_format_lie_beside_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    def form(call: str) -> object:
        called = call if name == "jobs.sql" else f"hw.{call}"
        (job,) = load_jobs([_module(tmp_path / "jobs", BY_FORMAT[name].replace("FORMAT", called), name)])
        return job.topics[0].format

    with pytest.raises(JobDefinitionError) as refused:
        form("avro('schemas/click.avsc')")
    folders = f"{tmp_path}/jobs or {tmp_path}/elsewhere"
    assert f"avro: there is no file schemas/click.avsc in {folders}; give a record's schema" in str(
        refused.value
    )
    for folder in ("elsewhere", "jobs"):
        (tmp_path / folder / "schemas").mkdir()
        (tmp_path / folder / "schemas" / "click.avsc").write_text(SCHEMA.replace("who", folder))
        assert form("avro('schemas/click.avsc')") == hw.avro(SCHEMA.replace("who", folder))
    file = descriptor_pb2.FileDescriptorProto(name="click.proto")
    file.message_type.add(name="Click").field.add(name="who", number=1, type=9, label=1)
    described = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (tmp_path / "jobs" / "click.desc").write_bytes(described)
    assert form("protobuf('click.desc', 'Click')") == hw.protobuf(tmp_path / "jobs" / "click.desc", "Click")
