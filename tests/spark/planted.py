"""Where each kind of the catalogue, and each form of it, is planted, and where its clean twin is.

Most are stories (test_told_histories), each with a clean twin by construction. The others are in `ELSEWHERE`: a test
that names kind and form, and its clean twin in the same test or in one named here.
`python tests/spark/planted.py` prints the table.
"""

from __future__ import annotations

import ast
from pathlib import Path

from test_told_histories import PACKS

from checkers.catalogue import CATALOGUE

HERE = Path(__file__).parent
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "lost_write/unreadable": ("test_run_kinds", "test_a_final_read_that_does_not_return_it", "kept"),
    "stuck/client": ("test_run_kinds", "test_stuck_after_healing", "slow client"),
    "stuck/start": (
        *("test_failover_refused", "test_a_start_that_hangs_is_stuck_with_the_states_that_were_described", "hung"),
    ),
    "failover_refused/timeout": (
        *("test_failover_refused", "test_a_stop_that_is_refused_or_does_not_end_is_found", "clean"),
    ),
    "thin/ok_sends": ("test_run_kinds", "test_a_run_under_its_floor", "test_a_run_over_its_floor"),
    "thin/ok_polls": ("test_run_kinds", "test_a_run_under_its_floor", "test_a_run_over_its_floor"),
    "thin/faults_bit": ("test_run_kinds", "test_a_run_under_its_floor", "test_a_run_over_its_floor"),
    "thin/polled_records_on_destination": (
        *("test_run_kinds", "test_a_run_under_its_floor", "test_a_run_over_its_floor"),
    ),
    "thin/nemesis": ("test_judge", "test_a_nemesis_that_never_bit_is_reported_though_others_did", "both"),
    "thin/idle_mirror": (
        "test_idle_mirror",
        "test_a_mirror_that_stood_still_for_65_of_75_seconds",
        "test_a_mirror_that_pauses_at_every_fault_is_not_idle",
    ),
    "thin/idle_partitions": ("test_idle_mirror", "test_partitions_under_faults", "two partitions"),
    "poll_skip/assigned": (
        *("test_told_assigned", "test_our_own_consumers_begin_where_their_role_says", "from-the-start"),
    ),
    "pid_swallowed": ("test_producers", "local_write_taken_for_a_mirrored_one", "local_write_at_its_own_offset"),
    "group_out_of_range/look": ("test_groups", "test_groups_of_a_real_run", "late"),
    "group_overwritten/filter": ("test_groups", "test_groups_of_a_real_run", "there"),
    "group_overwritten/missing": ("test_groups", "test_groups_of_a_real_run", "elsewhere"),
    "state_key_skew": ("test_states", "test_state_keys_and_memory", "C"),
    "acl_lost/local": ("test_access", "test_bindings", "DENY kept"),
    "acl_lost/appeared": ("test_access", "test_after_the_stop", "made"),
    "orphan_objects": ("test_object_store", "test_objects", "young"),
    "referenced_deleted/missing": ("test_object_store", "test_objects", "named"),
}
"""kind or kind/form → module, function that plants it, and its clean twin: a name within that function, or another
function of the module."""


def wanted() -> list[str]:
    """Every kind, or every form of it."""
    return [key for kind in CATALOGUE.values() for key in [f"{kind.name}/{f}" for f in kind.forms] or [kind.name]]


def told() -> dict[str, tuple[str, str]]:
    """kind or kind/form → the pack and the first story that plants it."""
    found: dict[str, tuple[str, str]] = {}
    for pack, stories in PACKS.items():
        for story, (_, kinds) in stories.stories.items():
            for kind in sorted(kinds):
                found.setdefault(kind, (pack, story))
    return found


def words(module: str) -> dict[str, set[str]]:
    """Function → the strings in it, whole and by their parts between slashes."""
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    found: dict[str, set[str]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            nodes = (n.value for n in ast.walk(function) if isinstance(n, ast.Constant) and isinstance(n.value, str))
            texts = [part for text in nodes for part in (text, *text.split("/"))]
            found[function.name] = set(texts)
    return found


def table() -> list[tuple[str, str, str]]:
    """kind or kind/form, the test that plants it, its clean twin; empty where there is none."""
    stories = told()
    rows = []
    for key in wanted():
        if key in stories:
            pack, story = stories[key]
            rows.append((key, f"{pack}: {story}/fault", f"{pack}: {story}/clean"))
        else:
            module, function, twin = ELSEWHERE.get(key, ("", "", ""))
            rows.append((key, f"{module}: {function}" if module else "", twin))
    return rows


if __name__ == "__main__":
    import sys

    for row in table():
        sys.stdout.write("| " + " | ".join(row) + " |\n")
