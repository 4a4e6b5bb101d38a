"""Finds the invocation that a completion belongs to, in histories that do not name it by an index.

A process may have several operations under way at once, as Kafka clients do. A completion belongs, in this order, to

1. the operation of its process that has the same name `op`, where the history names operations (or whose invocation
   has the index `op`, where it does not name them);
2. the oldest operation under way of its process and `f` about the same thing (a send's value, a commit's offset);
3. the operation that was completed before and was about the same thing: a second completion;
4. the oldest one under way of its process and `f` that may be meant: same topic and partition, as far as both state
   them, and not about another thing;
5. itself: it has no invocation.

It cannot tell apart operations that are about the same thing and have no names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

UNDER_WAY_AT_MOST: Final = 100_000  # of one process and f; the oldest are forgotten: they never complete
DONE_AT_MOST: Final = 200_000  # completed operations among which a second completion finds its own

Place = tuple[Hashable, ...]
Lane = tuple[str, str]  # process, f


@dataclass(slots=True, eq=False)
class _Invoked:
    """An operation under way. what: None when it does not state it; None within place matches everything."""

    index: int
    lane: Lane
    what: Hashable
    place: Place
    op: Hashable


_Queue = OrderedDict[int, _Invoked]  # by index, the oldest first


class Pairing:
    """The operations under way of one history, whose events are fed in order."""

    def __init__(self) -> None:
        self._under_way: dict[Lane, _Queue] = {}
        self._about: dict[tuple[Lane, Hashable], _Queue] = {}  # what None: those that do not state it
        self._named: dict[tuple[str, Hashable], _Invoked] = {}
        self._done: OrderedDict[tuple[Lane | str, Hashable], int] = OrderedDict()

    def invoked(
        self, index: int, process: str, f: str, what: Hashable = None, place: Place = (), op: Hashable = None
    ) -> None:
        """An operation begins. what: what identifies its records; place: topic, partition and the like; op: its name
        in the history."""
        lane = (process, f)
        begun = _Invoked(index, lane, what, place, op)
        mine = self._under_way.setdefault(lane, OrderedDict())
        mine[index] = begun
        self._about.setdefault((lane, what), OrderedDict())[index] = begun
        if op is not None:
            self._named[process, op] = begun
        if len(mine) > UNDER_WAY_AT_MOST:
            self._over(next(iter(mine.values())))

    def completed(
        self, index: int, process: str, f: str, what: Hashable = None, place: Place = (), op: Hashable = None
    ) -> int:
        """The index of the invocation that a completion belongs to; its own where it has none."""
        lane = (process, f)
        begun = again = None
        if op is not None:
            begun = self._named.get((process, op)) or self._by_index(lane, op)
            again = self._done.get((process, op))
        if begun is None and again is None:
            begun = None if what is None else _oldest(self._about.get((lane, what)), op, ())
            again = None if begun is not None or what is None or op is not None else self._done.get((lane, what))
        if begun is None and again is None:
            vague = self._about.get((lane, None)) if what is not None else self._under_way.get(lane)
            begun = _oldest(vague, op, place)
        if begun is None:
            return index if again is None else again
        self._over(begun)
        self._remember(begun, what)
        return begun.index

    def _by_index(self, lane: Lane, op: Hashable) -> _Invoked | None:
        mine = self._under_way.get(lane)
        begun = mine.get(op) if mine is not None and type(op) is int else None
        return begun if begun is not None and begun.op is None else None

    def _over(self, begun: _Invoked) -> None:
        """Remove it: it is not under way any more."""
        mine, about = self._under_way[begun.lane], self._about[begun.lane, begun.what]
        del mine[begun.index], about[begun.index]
        if not mine:
            del self._under_way[begun.lane]
        if not about:
            del self._about[begun.lane, begun.what]
        if self._named.get((begun.lane[0], begun.op)) is begun:
            del self._named[begun.lane[0], begun.op]

    def _remember(self, begun: _Invoked, what: Hashable) -> None:
        for name, about in ((begun.lane, begun.what), (begun.lane, what), (begun.lane[0], begun.op)):
            if about is not None:
                self._done[name, about] = begun.index
        while len(self._done) > DONE_AT_MOST:
            self._done.popitem(last=False)


def _oldest(candidates: _Queue | None, op: Hashable, place: Place) -> _Invoked | None:
    """The first that may be meant. One with a name of its own is not completed under another."""
    for begun in () if candidates is None else candidates.values():
        if (op is None or begun.op is None) and _fits(place, begun.place):
            return begun
    return None


def _fits(one: Place, other: Place) -> bool:
    """Whether two places may be the same: their parts are equal wherever both have one."""
    return all(a is None or b is None or a == b for a, b in zip(one, other, strict=False))
