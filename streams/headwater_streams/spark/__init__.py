"""Spark from inside: the JVM's objects, plans as Spark made them, its checkpoints and its errors."""
