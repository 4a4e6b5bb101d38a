"""What a mutation is, and the registry. A mutation breaks an example, or returns False where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from model.example import Example, simulate
from model.generated import drawn_plans
from model.mutations.victim import Victim
from model.plan import Plan
from model.world import World

TRIES = 400
"""Examples that are tried until a mutation has applied to enough of them."""


class Stage(Enum):
    """LOGS: the logs are changed before the final reads, so that these and the evidence show it. TABLES: the stored
    tables are changed afterwards."""

    LOGS = "logs"
    TABLES = "tables"


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """kind, form: what must be found. may: kinds that may come with it → why. plan: required fields of the plan.
    bite: applies it; False where the example has nothing to apply it to."""

    name: str
    what: str
    kind: str
    form: str | None
    stage: Stage
    bite: Callable[[Victim], bool]
    may: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, object] = field(default_factory=dict)

    @property
    def sort(self) -> str:
        """The sort of examples that it applies to."""
        return Plan(seed=0, **self.plan).sort  # type: ignore[arg-type]

    def bitten(self, count: int, *, first: int) -> list[Example]:
        """That many examples with this fault, numbered from `first`. Fewer only if TRIES examples do not suffice."""
        found: list[Example] = []
        for drawn in drawn_plans(TRIES):
            if len(found) == count:
                break
            scenario = "failover" if drawn.scenario == "failback" else drawn.scenario
            plain = {"scenario": scenario, "compacted": False, "recreated": False, "resends": False}
            plan = replace(drawn, **{**plain, **self.plan})  # type: ignore[arg-type]
            number = first + len(found)
            bit: list[bool] = []
            rng = Random(f"{self.name} {plan.seed}")

            def strike(world: World, rng: Random = rng, bit: list[bool] = bit) -> None:
                bit.append(self.bite(Victim(world, rng)))

            logs = self.stage is Stage.LOGS
            example = simulate(plan, number, letter="m", before_final=strike if logs else None)
            if not logs:
                strike(example.world)
            if bit[0]:
                found.append(example)
        return found


MUTATIONS: dict[str, Mutation] = {}


def mutation(
    kind: str,
    *,
    form: str | None = None,
    stage: Stage = Stage.TABLES,
    may: Mapping[str, str] | None = None,
    **plan: object,
) -> Callable[[Callable[[Victim], bool]], Callable[[Victim], bool]]:
    """Register a function as a mutation. Its name is the function's, and its docstring says what it does."""

    def add(bite: Callable[[Victim], bool]) -> Callable[[Victim], bool]:
        assert bite.__doc__, f"{bite.__name__} must say what it does"
        what = " ".join(bite.__doc__.split())
        MUTATIONS[bite.__name__] = Mutation(
            name=bite.__name__, what=what, kind=kind, form=form, stage=stage, bite=bite, may=may or {}, plan=plan
        )
        return bite

    return add
