"""Files by their first bytes, so that each is read once however many are looked for among them."""

from collections import defaultdict
from collections.abc import Mapping

from headwater.ship.mark import Mark, digest
from headwater.ship.tail import FileKey


class Beginnings:
    """Finds files whose beginnings match marks."""

    def __init__(self, heads: Mapping[FileKey, bytes]) -> None:
        """Takes the files' first bytes, HEAD_BYTES of each where it has so many."""
        self._heads = heads
        self._by_length: dict[int, dict[str, list[FileKey]]] = {}

    def like(self, mark: Mark) -> list[FileKey]:
        """The files that begin as a mark says."""
        count = mark.head_bytes
        if count not in self._by_length:
            by_head = self._by_length[count] = defaultdict(list)
            for key, head in self._heads.items():
                if len(head) >= count:
                    by_head[digest(head[:count])].append(key)
        return self._by_length[count].get(mark.head, [])
