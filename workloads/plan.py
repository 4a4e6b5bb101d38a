"""What producers send: drawn from the seed, the same for every run with that seed and those options."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from harness.history.ops import Action, OpRecord
from workloads.values import make_value

_SEND = Action.SEND.value


class SendPlan:
    """Draws the records of one producer's operations, and whether its transactions are to be aborted.

    targets: every (topic, partition) it may write to. role: the producer's name without incarnation. tag: the run's
    (workloads.values). processes: how many share the producer. With several, each writes to a share of the targets,
    which overlaps its neighbour's by one, so that a partition that does not answer blocks only those processes.
    """

    def __init__(
        self,
        *,
        seed: int,
        role: str,
        tag: str,
        targets: Sequence[tuple[str, int]],
        max_records: int,
        value_bytes: int,
        abort_ratio: float = 0.0,
        keys: bool = True,
        processes: int = 1,
    ) -> None:
        self._random = Random(f"{seed}/{role}").random
        self._targets = tuple(targets)
        self._processes = processes
        self._shares: dict[str, tuple[tuple[str, int], ...]] = {}
        self._max = max_records
        self._bytes = value_bytes
        self._abort_ratio = abort_ratio
        self._keys = keys
        self._tag = tag
        self._prefix = ""
        self._seq = 0

    def use_client(self, client: str) -> None:
        """Restart the numbering of values, as for each client incarnation."""
        self._prefix = f"{self._tag}/{client}"
        self._seq = 0

    def records(self, process: str) -> list[OpRecord]:
        """One to `max_records` records for random partitions of the process's share, as in an invocation."""
        random, seq = self._random, self._seq
        targets = self._shares.get(process) or self._share(process)
        count = 1 + int(random() * self._max) if self._max > 1 else 1
        prefix = f"{self._prefix}:{process}"
        key = process if self._keys else None
        records = []
        for _ in range(count):
            topic, partition = targets[int(random() * len(targets))]
            records.append(OpRecord(_SEND, topic, partition, None, make_value(prefix, seq, self._bytes), key))
            seq += 1
        self._seq = seq
        return records

    def _share(self, process: str) -> tuple[tuple[str, int], ...]:
        """The targets of a process; a replacement (`p3.1` of `p3`) takes over its share."""
        base = process.split(".")[0]
        if base not in self._shares:
            step = -(-len(self._targets) // self._processes)
            first = len(self._shares) % self._processes * step
            width = len(self._targets) if self._processes == 1 else min(step + 1, len(self._targets))
            self._shares[base] = tuple(self._targets[(first + n) % len(self._targets)] for n in range(width))
        return self._shares[base]

    def aborts(self) -> bool:
        """Whether the next transaction is to be aborted on purpose."""
        return self._random() < self._abort_ratio
