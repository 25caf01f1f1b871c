"""Nexmark through the library, in plain PySpark and in Apache Flink, side by side.

Nexmark (Tucker, Tufte, Papadimos, Maier: "NEXMark, a benchmark for queries over data streams") is an auction house as
three streams: persons who register, auctions that they open, bids. The queries are those of github.com/nexmark/nexmark,
with its proportions (1 : 3 : 46), sizes (200, 500, 100 bytes) and ratios of what is hot; `generator` is our own.

All contenders read the same topics of the same broker, one topic for each kind of event, and `rows` compares what they
wrote row by row. What differs from nexmark/nexmark, for all contenders alike:

- A thousand events a second of event time, each with a millisecond of its own: no two bids tie in time, so q18 has one
  answer. Persons and auctions are there before anything refers to them.
- q5 has the window's end as a column more, or its rows could not be told apart.
- The rows of windows that were not over when the topic ended are left out of the comparison: Spark has not written
  them, Flink writes them when its source ends.

And in Spark, in `jobs` and `plain` alike:

- q3, q8 and q20 are joins within a bound of time that the generator keeps to; in Flink q3 and q20 have none.
- q5 finds the windows' hottest auctions with one aggregate, q7 the highest bid as the greatest struct: the definitions
  join windows with windows, or with bids, a chain of stateful operators that the library refuses. Of bids that tie for
  the highest price q7 gives one; the comparison with Flink's would tell.

In Flink q13's side input is a table with versions, joined as of the bid's time: what nexmark/nexmark does, a look-up
join with a file, Flink 2 has no connector for.
"""
