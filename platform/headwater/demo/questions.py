"""Four questions about a month of flights, in SQL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.sql import SqlSession


@dataclass(frozen=True)
class Question:
    """A question and the statement that answers it."""

    text: str
    sql: str


QUESTIONS = (
    Question(
        "Which carriers left latest, and how often?",
        """
        select carrier, sum(departures)::bigint as departures,
            round(sum(departures * avg_delay) / sum(departures), 1) as avg_delay, max(max_delay) as worst
        from gold.delay_by_carrier group by carrier
        having sum(departures) >= 20 order by avg_delay desc limit 5""",
    ),
    Question(
        "Which were the worst hours to leave New York?",
        """
        select window_start as hour, sum(departures)::bigint as departures,
            round(sum(departures * avg_delay) / sum(departures), 1) as avg_delay
        from gold.delay_by_carrier group by window_start having sum(departures) >= 20
        order by avg_delay desc limit 5""",
    ),
    Question(
        "Where did most flights go, and how long were they in the air?",
        """
        select dest, count(*) as flights, round(avg(air_time), 1) as minutes_in_the_air,
            count(distinct carrier) as carriers
        from gold.flights group by dest order by flights desc, dest limit 5""",
    ),
    Question(
        "Did they leave later when it rained or snowed?",
        """
        select case when precip > 0.1 then 'much' when precip > 0 then 'a little' else 'none' end as rain_or_snow,
            count(*) as departures, round(avg(delay_minutes), 1) as avg_delay
        from gold.departures_weather where precip is not null group by all order by avg_delay desc""",
    ),
)


@dataclass(frozen=True)
class Answer:
    """A question with the rows that answer it."""

    question: Question
    rows: tuple[dict[str, Any], ...]


def ask(home: Path) -> list[Answer]:
    """Answer the questions from the tables of `home`, without a JVM."""
    with SqlSession(home) as session:
        return [
            Answer(question, tuple(session.run(question.sql.strip()).objects())) for question in QUESTIONS
        ]
