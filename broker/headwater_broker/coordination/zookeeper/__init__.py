"""Shared state in ZooKeeper, in Kafka's own layout. `znodes` documents that layout; `session` alone knows
kazoo.
"""
