"""Plans drawn by hypothesis: the same ones in every run, because all of them are judged at once.

Hypothesis draws the plans and nothing else: a judgement takes tens of seconds whatever its size, so there is no
drawing, judging and shrinking example by example. A failing example has a number and can be run alone:

    PYTHONPATH=tests:. python -m model NUMBER            what happens in it
    PYTHONPATH=tests:. python -m model NUMBER --judge    and the judge's verdict on it alone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from model.plan import Plan

PRODUCERS = ("plain", "idempotent", "txn", "steps")
_APART = 7_919
TROUBLE = ("elections", "deaths", "link", "expiry", "pauses")


BROKEN = ("link", "mirror", "broker")


@st.composite
def plans(draw: st.DrawFn, **fixed: object) -> Plan:
    """Any plan. `fixed`: fields that are not drawn."""
    compacted = draw(st.integers(0, 7)) == 0
    drawn: dict[str, object] = {
        "seed": draw(st.integers(0, 2**31)),
        "scenario": draw(st.sampled_from(("steady", "failover", "failover", "failback"))),
        "on_stop": draw(st.sampled_from(("truncate", "abort"))),
        "partitions": draw(st.sampled_from((1, 1, 2))),
        "brokers": draw(st.sampled_from((2, 2, 3))),
        "base": draw(st.sampled_from((0, 0, 0, 10**9, 10**12))),
        "sends": draw(st.sampled_from((1, 2, 3, 4, 5, 6, 8, 10))),
        "producers": tuple(draw(st.lists(st.sampled_from(PRODUCERS), min_size=1, max_size=2))),
        "consumers": draw(st.sampled_from((0, 1, 1, 2))),
        "groups": draw(st.sampled_from((0, 0, 1, 1, 2))),
        "share": draw(st.integers(0, 4)) == 0,
        "tv2": draw(st.booleans()),
        "compacted": compacted,
        "trouble": tuple(sorted(draw(st.sets(st.sampled_from(TROUBLE), max_size=3)))),
        "access": draw(st.integers(0, 2)) == 0,
        "reset_ids": draw(st.integers(0, 2)) == 0,
        "zombie": draw(st.integers(0, 3)) == 0,
        "lagging": draw(st.integers(0, 3)) == 0,
        "objects": draw(st.integers(0, 5)) == 0,
        "resends": draw(st.integers(0, 3)) == 0,
        "pipelined": draw(st.integers(0, 3)) == 0,
        "recreated": draw(st.integers(0, 7)) == 0,
    }
    plan = Plan(**{**drawn, **fixed})  # type: ignore[arg-type]
    if plan.compacted:
        # Each cluster's cleaner may remove a different copy of a value that was sent twice, which the judge cannot tell
        # from a loss yet; and a failback discards records that have already superseded others (see `trouble.cleaner`).
        plan = replace(plan, resends=False, compacted=plan.scenario != "failback")
    if plan.scenario != "failback":
        return plan
    if plan.mirror == "mm2":
        return replace(plan, scenario="failover")
    # Records that a failback discards may have been read on A before: they are lost by design, which is not modeled.
    return replace(plan, consumers=0, groups=0, share=False)


@cache
def drawn_plans(count: int, **fixed: object) -> tuple[Plan, ...]:
    """That many different plans, the same ones at each call."""
    found: list[Plan] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(plans(**fixed))
    def collect(plan: Plan) -> None:
        found.append(replace(plan, seed=plan.seed + _APART * len(found)))  # small seeds are drawn more than once

    collect()
    assert len(found) >= count, f"hypothesis drew {len(found)} plans"
    return tuple(found[:count])


@dataclass(frozen=True)
class Sort:
    """Examples that are judged together: how many clean ones, and the fields that are the same in all."""

    count: int
    fixed: dict[str, object]


SORTS = {
    "cluster": Sort(500, {}),
    "mm2": Sort(100, {"mirror": "mm2", "compacted": False, "renamed": True}),
    "eos": Sort(
        100,
        {
            "mirror": "mm2",
            "exactly_once": True,
            "trouble": ("pauses",),
            "compacted": False,
            "renamed": True,
        },
    ),
    "unhealed": Sort(30, {"scenario": "steady", "compacted": False, "lagging": True}),
    "unclean": Sort(
        60,
        {
            "scenario": "failover",
            "producers": ("plain", "idempotent"),
            "trouble": ("unclean",),
            "groups": 0,
            "share": False,
            "compacted": False,
            "zombie": False,
        },
    ),
}


def sort_of_plans(name: str, *, count: int | None = None) -> tuple[Plan, ...]:
    """The plans of one sort: as many as the tests judge, or `count`."""
    sort = SORTS[name]
    found = drawn_plans(sort.count if count is None else count, **sort.fixed)
    if name == "unhealed":
        return tuple(replace(plan, unhealed=BROKEN[n % len(BROKEN)]) for n, plan in enumerate(found))
    return found
