"""The parameters of an example. Everything else follows from them and the seed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What happens in one example.

    seed: of all choices of detail. mirror: `cluster` (Cluster Mirroring, offsets kept) or `mm2`. scenario: `steady`
    (never stopped), `failover`, or `failback` (A is truncated, and B is mirrored to A; no readers may be on A).
    on_stop: `truncate` (mirrored up to the last stable offset; the stop truncates to where no transaction is open) or
    `abort` (mirrored up to the high watermark; the stop aborts what is open).
    base: first offset of the logs. sends: most operations that producers begin. producers: one of each kind listed:
    `plain`, `idempotent`, `txn` (one operation per transaction), `steps` (begin, sends and end as operations).
    tv2: transactions bump the producer epoch. groups: consumer groups; share: a share group too. trouble: elections,
    broker deaths, link cuts and expiry that may happen. reset_ids: B's producer ids begin where A's do, after a reset.
    zombie: a client of A dies with its transaction open, which its coordinator aborts only after the stop.
    lagging: the mirror copies only a few batches before it catches up or is stopped. renamed: with MirrorMaker, the
    topic has another name on B. objects: A is stored as by a diskless cluster. exactly_once: MirrorMaker commits
    records and its own positions in one transaction; a killed worker's is aborted on B.
    resends: values that were refused, undecided without idempotence, or aborted are sent again. pipelined: producers
    have several sends in flight. recreated: another topic of A is deleted and recreated while clients use it.
    unhealed: what the harness cannot heal after the load and stays broken to the end: `link`, `mirror` or `broker`
    (one of A's).
    """

    seed: int
    mirror: str = "cluster"
    scenario: str = "failover"
    on_stop: str = "truncate"
    partitions: int = 1
    brokers: int = 2
    base: int = 0
    sends: int = 8
    producers: tuple[str, ...] = ("idempotent",)
    consumers: int = 1
    groups: int = 0
    share: bool = False
    tv2: bool = True
    compacted: bool = False
    trouble: tuple[str, ...] = ()
    access: bool = False
    reset_ids: bool = False
    zombie: bool = False
    lagging: bool = False
    renamed: bool = False
    objects: bool = False
    exactly_once: bool = False
    resends: bool = False
    pipelined: bool = False
    recreated: bool = False
    unhealed: str = ""

    @property
    def unclean(self) -> bool:
        """Whether A may elect leaders that are not in sync."""
        return "unclean" in self.trouble

    @property
    def whole_log(self) -> bool:
        """Whether A's log holds, at the end, everything that was ever appended."""
        return not (self.compacted or self.unclean or "expiry" in self.trouble or self.scenario == "failback")

    @property
    def sort(self) -> str:
        """Which examples it is judged with: those of the same mirror and contract."""
        if self.exactly_once:
            return "eos"
        if self.unhealed:
            return "unhealed"
        return "unclean" if self.unclean else self.mirror
