-- How busy each route is and how late its flights leave, hour by hour, from the cleaned departures of flights.py.
-- The same kind of job as delay_by_carrier there, in SQL: run it with `headwater jobs run jobs/routes.sql`.

CREATE STREAMING TABLE gold.delay_by_route (
  CONSTRAINT counts_something EXPECT (departures > 0) ON VIOLATION FAIL
)
WITH (mode = 'update', late = 'table')
AS SELECT
  origin,
  dest,
  window_start,
  window_end,
  count(*) AS departures,
  count_if(delay_minutes > 15) AS delayed,
  avg(delay_minutes) AS avg_delay
FROM stream(silver.departures, event_time => 'departed_at', watermark => '30 minutes')
GROUP BY origin, dest, window(departed_at, '1 hour');
