"""Copies topics from one cluster to another: whole batches, partition for partition, each record once."""

from headwater.mirror.errors import MirrorError
from headwater.mirror.mirror import Mirror, MirrorOptions

__all__ = ["Mirror", "MirrorError", "MirrorOptions"]
