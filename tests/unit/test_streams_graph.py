"""The graph of topics, jobs and tables, from declarations alone."""

import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from rich.console import Console

import headwater as hw
from headwater.cli._graph import svg_of, tree_of
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.plan.graph import Graph, Node, graph_of
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.planning import circle_of, plan_each
from headwater_streams.storage.home import Home

clicks = hw.topic("clicks", schema="page STRING", event_time=None)
pages = hw.topic("pages", schema="page STRING")
silver_clicks = hw.table("silver.clicks")
silver_pages = hw.table("silver.pages")
gold_named = hw.table("gold.named")
looked_up = hw.lookup("silver.pages")


@hw.job(target=hw.delta("silver.clicks"))
def clean_clicks(clicks: DataFrame) -> DataFrame:
    return clicks


@hw.job(target=hw.delta("silver.pages"))
def clean_pages(pages: DataFrame) -> DataFrame:
    return pages


@hw.job(target=hw.delta("gold.named"))
def name_clicks(silver_clicks: DataFrame, silver_pages: DataFrame) -> DataFrame:
    return silver_clicks.join(silver_pages, "page")


@hw.job(target=hw.delta("silver.pages"), name="again")
def again(gold_named: DataFrame) -> DataFrame:
    return gold_named


@hw.job(target=hw.delta("gold.titled"))
def title_clicks(silver_clicks: DataFrame, looked_up: DataFrame) -> DataFrame:
    return hw.enrich(silver_clicks, looked_up, on=["page"])


@hw.job(target=hw.delta("gold.none"))
def only_look_up(looked_up: DataFrame) -> DataFrame:
    return looked_up


requests = hw.topic("east", "west", schema="path STRING, agent STRING")


@hw.job(targets={name: hw.delta(f"silver.{name}") for name in ("people", "bots", "paths")})
def split_requests(requests: DataFrame) -> dict[str, DataFrame]:
    return {"people": requests, "bots": requests, "paths": requests}


def _graph(*jobs: Any) -> Graph:
    return graph_of([bind(job) for job in jobs])


def test_graph_layers_stand_behind_what_feeds_them() -> None:
    layers = _graph(name_clicks, clean_clicks, clean_pages).layers
    assert [sorted(node.name for node in layer) for layer in layers] == [
        ["clicks", "pages"],
        ["clean_clicks", "clean_pages"],
        ["silver.clicks", "silver.pages"],
        ["name_clicks"],
        ["gold.named"],
    ]
    assert layers[0][0].kind == "topic"


def test_graph_of_no_jobs_is_empty() -> None:
    assert _graph().layers == []
    assert ET.fromstring(svg_of(_graph())) is not None


def test_graph_jobs_in_a_circle_are_named() -> None:
    with pytest.raises(JobDefinitionError, match=r"name_clicks, again|again, name_clicks"):
        _ = _graph(clean_clicks, name_clicks, again).layers


def test_graph_topic_and_table_of_one_name_are_two() -> None:
    assert Node("topic", "x") != Node("table", "x")


def test_graph_tree_names_each_place_once() -> None:
    console = Console(width=100, file=StringIO())
    for tree in tree_of(_graph(clean_clicks, clean_pages, name_clicks)):
        console.print(tree, markup=False)
    assert isinstance(console.file, StringIO)
    told = console.file.getvalue()
    assert told.count("gold.named") == 1
    assert "name_clicks()  (with silver.pages)" in told
    assert "name_clicks()  (above)" in told


def test_graph_svg_has_a_box_for_each_node_and_a_line_for_each_edge() -> None:
    graph = _graph(clean_clicks, clean_pages, name_clicks)
    root = ET.fromstring(svg_of(graph))
    space = "{http://www.w3.org/2000/svg}"
    texts = {text.text for text in root.iter(f"{space}text")}
    assert texts == {
        "clicks (topic)", "pages (topic)", "clean_clicks()", "clean_pages()", "silver.clicks", "silver.pages",
        "name_clicks()", "gold.named",
    }  # fmt: skip
    assert len(list(root.iter(f"{space}path"))) == len(graph.edges) == 7
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    boxes = [rect for rect in root.iter(f"{space}rect") if rect.get("x")]
    for rect in boxes:
        x, y = float(rect.get("x", "-1")), float(rect.get("y", "-1"))
        assert 0 <= x <= x + float(rect.get("width", "0")) <= width
        assert 0 <= y <= y + float(rect.get("height", "0")) <= height


def test_graph_look_ups_feed_their_job_and_must_be_there_first() -> None:
    job = bind(title_clicks)
    assert _graph(title_clicks).sources(Node("job", "title_clicks")) == [
        Node("table", "silver.clicks"),
        Node("table", "silver.pages"),
    ]
    assert (list(job.inputs), list(job.lookups)) == (["silver_clicks"], ["looked_up"])
    assert job.table_names == {"silver.clicks", "silver.pages"}


def test_bind_only_look_ups_is_refused_for_they_start_no_batch() -> None:
    with pytest.raises(JobDefinitionError, match="only look-ups, and they start no batch"):
        bind(only_look_up)
    with pytest.raises(JobDefinitionError, match=r"lookup 'pages': write schema\.table"):
        hw.lookup("pages")


def test_fan_out_graph_has_every_topic_and_table() -> None:
    edges = {(source.name, target.name) for source, target in _graph(split_requests).edges}
    assert edges == {
        ("east", "split_requests"),
        ("west", "split_requests"),
        ("split_requests", "silver.people"),
        ("split_requests", "silver.bots"),
        ("split_requests", "silver.paths"),
    }


def test_circle_of_jobs_leaves_out_those_that_only_feed_it_or_read_it() -> None:
    jobs = [bind(each) for each in (clean_clicks, name_clicks, again, title_clicks)]
    assert [job.name for job in circle_of(jobs)] == ["name_clicks", "again"]
    assert circle_of([bind(clean_clicks), bind(name_clicks)]) == []


def test_job_whose_frame_spark_refuses_keeps_no_other_from_being_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job: Job, *_: Any) -> None:
        raise AnalysisException(f"Column of {job.name} is gone. SQLSTATE: XX000\nthe plan")

    monkeypatch.setattr("headwater_streams.runtime.planning.analyse", refuse)
    source: Any = SimpleNamespace(require_cluster=lambda _: None)
    context = StageContext(cast(Any, None), Home(tmp_path), source)
    planned = plan_each(context, [bind(clean_clicks), bind(clean_pages), bind(name_clicks)])
    assert [(each.state, str(each)) for each in planned.left_out] == [
        ("refused", "job 'clean_clicks': [None] Column of clean_clicks is gone."),
        ("refused", "job 'clean_pages': [None] Column of clean_pages is gone."),
        ("blocked", "job 'name_clicks' is not planned: clean_clicks, which writes silver.clicks, is wrong"),
    ]
