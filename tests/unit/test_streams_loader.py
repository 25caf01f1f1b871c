"""Job modules: what is wrong with one is one sentence with its place."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

import headwater as hw
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.loader import load_each, load_jobs

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
    "rule that cannot be meant": (
        _HEAD + "has_key = hw.expect.unique()\n",
        r"jobs\.py, line 4: unique: give the columns of the key",
    ),
    "rule that there is not": (
        _HEAD + "has_key = hw.expect.uniqe('who')\n",
        r"jobs\.py, line 4: .*hw\.expect has no rule 'uniqe'; it has unique, ",
    ),
    "module that gives up": (
        "import sys\nsys.exit('set REGION')\n",
        r"jobs\.py, line 2: SystemExit: set REGION",
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


def _left_out(*references: str) -> tuple[list[str], list[tuple[str, dict[str, tuple[str, ...]]]]]:
    """The jobs that can be loaded, and of each thing that cannot: what is said of it, and which jobs it is about."""
    loaded = load_each(references)
    return [job.name for job in loaded.jobs], [(str(each.error), dict(each.jobs)) for each in loaded.left_out]


def test_load_each_wrong_module_leaves_the_jobs_of_the_others(tmp_path: Path) -> None:
    good = _module(tmp_path, _HEAD + _JOB.format(table="clicks", more="", name="clean"), "good.py")
    syntax = _module(tmp_path, "def broken(:\n", "syntax.py")
    late = _module(
        tmp_path, _HEAD + _JOB.format(table="a", more="", name="one") + "raise OSError('gone')\n", "late.py"
    )
    jobs, wrong = _left_out(syntax, good, late)
    assert jobs == ["clean"]
    (first, of_first), (second, of_second) = wrong
    assert "syntax.py, line 1: invalid syntax" in first
    assert of_first == {}
    assert "late.py, line 8: OSError: gone" in second
    assert of_second == {"one": ("silver.a",)}, "what it had declared before, for those who read its tables"
    assert [each.file for each in load_each([syntax, late]).left_out] == [syntax, late]


def test_load_each_says_of_every_job_of_a_module_what_is_wrong(tmp_path: Path) -> None:
    text = _HEAD + "".join(
        _JOB.format(table=name, more="", name=name).replace("(clicks):", f"({parameter}):")
        for name, parameter in [("one", "visits"), ("two", "clicks"), ("three", "views")]
    )
    jobs, wrong = _left_out(_module(tmp_path, text))
    assert jobs == ["two"]
    assert [of for _, of in wrong] == [{"one": ("silver.one",)}, {"three": ("silver.three",)}]
    assert "no input for the parameter 'visits'" in wrong[0][0]
    assert "no input for the parameter 'views'" in wrong[1][0]
    path = str(tmp_path / "jobs.py")
    assert _left_out(f"{path}:two") == (["two"], [])
    assert [job for job, _ in [*_left_out(f"{path}:one")[1]]] == [wrong[0][0]]
    with pytest.raises(JobDefinitionError, match="no job 'four'; its jobs are two, one, three"):
        load_each([f"{path}:four"])


def test_load_each_says_of_every_statement_of_a_sql_file_what_is_wrong(tmp_path: Path) -> None:
    text = """CREATE STREAMING TABLE silver.a AS SELECT who FROM topic('clicks', schema => 'who STRING');
CREATE STREAMING TABLE silver.b AS SELECT who FROM topic('clicks', shema => 'who STRING; x');
CREATE OR REFRESH STREAMING TABLE silver.c WITH (mod = 'x') AS SELECT who FROM silver.a;
CREATE STREAMING TABLE ;
CREATE STREAMING TABLE silver.d AS SELECT who FROM silver.c"""
    path = _module(tmp_path, text, "jobs.sql")
    jobs, wrong = _left_out(path)
    assert jobs == ["a", "d"]
    assert [of for _, of in wrong] == [{"b": ("silver.b",)}, {"c": ("silver.c",)}, {}]
    assert [
        line in error for line, (error, _) in zip(["line 2", "line 3", "line 4"], wrong, strict=True)
    ] == [True] * 3
    assert len(_left_out(f"{path}:e")[1]) == 3, "one of these may have that name"
    (tmp_path / "jobs.sql").write_text("CREATE STREAMING TABLE silver.a AS SELECT 'who")
    assert _left_out(path)[0] == []


def test_load_each_jobs_that_clash_are_left_out_and_no_others(tmp_path: Path) -> None:
    one = _module(
        tmp_path,
        _HEAD + _JOB.format(table="a", more="", name="one") + _JOB.format(table="b", more="", name="two"),
        "one.py",
    )
    other = _module(
        tmp_path,
        _HEAD + _JOB.format(table="A", more="", name="three") + _JOB.format(table="c", more="", name="four"),
        "other.py",
    )
    jobs, wrong = _left_out(one, other)
    assert jobs == ["two", "four"]
    ((message, of),) = wrong
    assert "write silver.a and silver.A, which are one name" in message
    assert of == {"one": ("silver.a",), "three": ("silver.A",)}


def test_load_each_reference_that_names_nothing_is_refused(tmp_path: Path) -> None:
    good = _module(tmp_path, _HEAD + _JOB.format(table="clicks", more="", name="clean"))
    with pytest.raises(JobDefinitionError, match=r"no job module 'nowhere\.py'"):
        load_each([good, "nowhere.py"])
