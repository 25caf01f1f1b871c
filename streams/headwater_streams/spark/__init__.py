"""Spark's internals: the JVM's objects, analysed plans, checkpoints and errors."""
