"""The stored shapes of plans, see tests/spark/jobs/test_plan_shapes.py."""

import json
from pathlib import Path

from headwater_streams.spark.plan_shape import PlanShape

SHAPES = Path(__file__).with_suffix(".json")


def stored_shapes() -> dict[str, PlanShape]:
    """By `kind: job`."""
    return {name: PlanShape.from_json(value) for name, value in json.loads(SHAPES.read_text()).items()}
