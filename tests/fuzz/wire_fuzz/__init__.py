"""A fuzzer for the broker's wire protocol, which knows the protocol's structure.

- `schemas`: kio's classes for each API and version, and ours where kio has none.
- `values`: what stands in a field: names that exist sometimes, ids learned from answers, and what no client sends.
- `author`: writes a request field by field, so that it can lie about each length, count and tag.
- `records`: record batches and message sets, whole and broken.
- `sessions`: what one connection sends, and in which pieces; a session is also an entry of the corpus.
- `answers`: reads a connection's answers and says what is wrong with them.
- `target`: the broker's process: its log, memory and descriptors, and what an operator cleans up.
- `control`: the client that behaves well, whose records and answers must not suffer.
- `campaign`: sends sessions, keeps those that lead to something new, and collects what was found.
- `corpus`: the sessions that are kept, one file for each API.
"""
