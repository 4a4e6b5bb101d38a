"""Which leader epoch wrote which offsets, and which source offset is at which destination offset. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

UNKNOWN = -1


class EpochList:
    """Leader epochs with the offset at which each began: Kafka's leader epoch cache."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.begin(epoch, start)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), ascending in both."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The last epoch, UNKNOWN when there is none."""
        return self._epochs[-1] if self._epochs else UNKNOWN

    def begin(self, epoch: int, start: int) -> bool:
        """An epoch begins at an offset; entries that contradict it are removed. Returns whether anything changed."""
        if self._epochs and epoch <= self._epochs[-1]:
            return False
        self.truncate(start)
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def truncate(self, offset: int) -> None:
        """Forget epochs that began at or after an offset."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()

    def at(self, offset: int) -> int:
        """The epoch of the record at an offset; the first epoch for what is before it; UNKNOWN when there is none."""
        if not self._epochs:
            return UNKNOWN
        return self._epochs[max(0, bisect_right(self._starts, offset) - 1)]

    def before(self, offset: int) -> int:
        """The epoch of the last record before an offset, UNKNOWN when none is known."""
        index = bisect_right(self._starts, offset - 1) - 1
        return self._epochs[index] if index >= 0 else UNKNOWN

    def end_of(self, epoch: int) -> tuple[int, int | None]:
        """(largest epoch that is not above, offset after its last record): what OffsetForLeaderEpoch answers.

        The offset is None for the last epoch: it ends where the log ends. (UNKNOWN, None) when there is none.
        """
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return UNKNOWN, None
        end = self._starts[index + 1] if index + 1 < len(self._starts) else None
        return self._epochs[index], end


class OffsetShifts:
    """Where destination offsets differ from the source's (only wrong designs do that): ranges with a constant shift."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._sources: list[int] = []
        for start, source in entries:
            self.begin(start, source)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(first destination offset of a range, source offset of the record there)."""
        return tuple(zip(self._starts, self._sources, strict=True))

    def begin(self, start: int, source: int) -> None:
        """From destination offset `start` on, the source's offsets from `source` on follow one by one."""
        self.truncate(start)
        self._starts.append(start)
        self._sources.append(source)

    def truncate(self, offset: int) -> None:
        """Forget ranges that begin at or after a destination offset."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._sources.pop()

    def source(self, offset: int) -> int:
        """The source's offset of a destination offset."""
        index = bisect_right(self._starts, offset) - 1
        return offset if index < 0 else self._sources[index] + offset - self._starts[index]

    def destination(self, source: int) -> int:
        """The last destination offset that holds a source offset."""
        for start, first in zip(reversed(self._starts), reversed(self._sources), strict=True):
            if first <= source:
                return start + source - first
        return source
