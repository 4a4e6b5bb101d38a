"""Names of a scenario's moments: points between and within its steps at which faults can begin and be healed.

| moment | when |
|---|---|
| `stop.A-B` | before the mirror from A to B is asked to stop |
| `stopping.A-B` | when it says that a partition is being stopped |
| `start.B-A` | before a mirror is started |
| `truncation.B-A` | when it prepares a partition: a failback truncates then |
| `move.B`, `write.B` | before clients begin to work on B, and before those that write there for a while |
| `work` | before clients go on where they are |
| `settle` | before the mirrors have to catch up |
| `disaster`, `return` | of scenarios with a disaster |
| `end` | after the last step: everything is healed |

One that comes again is numbered: `write.B.2`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from harness.run.scenarios import Route

END: Final = "end"


class Moments:
    """Names moments in the order in which a scenario comes to them; the same for a rehearsal and for the run."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def next(self, step: str, place: Route | str = "") -> str:
        """The name of the moment before (or within) a step. place: the mirror's route, or a cluster."""
        where = place if isinstance(place, str) else "-".join(place)
        name = f"{step}.{where}" if where else step
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name}.{self._seen[name]}"
