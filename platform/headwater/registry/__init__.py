"""A schema registry that speaks the REST interface of Confluent's, and keeps its state as that one does.

`records` is the format of its topic, `state` what the records make together, `decisions` what a request changes, and
`formats` what a schema is; none of them does any I/O. `store` reads and appends the topic, `service` has one request
at a time decide and append, `app` is the HTTP around them.
"""
