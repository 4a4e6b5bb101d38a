"""Contracts: every contract names every kind, and clauses resolve as the head of the file says."""

from __future__ import annotations

import pytest

from harness.core import contracts
from harness.core.contracts import Level
from harness.core.errors import UsageError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", contracts.names())
def test_every_kind_of_the_catalogue_is_named(name: str) -> None:
    pytest.importorskip("pyspark")
    from checkers.catalogue import CATALOGUE

    named = {key.split("/")[0] for key in contracts.load(name).clauses}
    assert set(CATALOGUE) <= named


@pytest.mark.parametrize("name", contracts.names())
def test_every_key_is_a_kind_that_the_base_contract_names(name: str) -> None:
    base = set(contracts.load("kafka-clean").clauses)
    assert {key.split("/")[0] for key in contracts.load(name).clauses} <= base
    for clauses in contracts.load(name).clauses.values():
        assert all(clause.reason for clause in clauses)


def test_a_clause_for_one_cluster_leaves_the_others_as_they_were() -> None:
    contract = contracts.load("mm2-at-least-once")
    assert contract.clause("duplicate", cluster="B").level is Level.ALLOWED
    assert contract.clause("duplicate", cluster="A").level is Level.NEVER


def test_a_child_takes_back_what_its_parent_allowed() -> None:
    contract = contracts.load("mm2-exactly-once")
    assert contract.clause("duplicate", cluster="B").level is Level.NEVER
    assert contract.clause("mirror_duplicate").level is Level.NEVER
    assert contract.clause("offset_identity").level is Level.ALLOWED


def test_modifiers() -> None:
    plain, one, both = (contracts.load(f"mm2-at-least-once{m}") for m in ("", "+unclean-a", "+unclean"))
    assert plain.clause("lost_write", cluster="A").level is Level.NEVER
    assert one.clause("lost_write", cluster="A").level is Level.ALLOWED
    assert one.clause("lost_write", cluster="B").level is Level.NEVER
    assert one.clause("mirror_loss", cluster="B").level is Level.NEVER
    assert both.clause("mirror_loss", cluster="B").level is Level.ALLOWED
    assert both.base == "mm2-at-least-once"
    assert contracts.load("kafka-unclean").clause("replica_divergence", cluster="A").level is Level.NEVER


def test_a_modifier_may_have_other_clauses_for_a_family_of_mirrors() -> None:
    """Cluster Mirroring truncates its copy where the source lost records; MirrorMaker 2 keeps what it wrote."""
    for base, level in (("cluster-mirror/strict", Level.ALLOWED), ("mm2-at-least-once", Level.NEVER)):
        contract = contracts.load(f"{base}+unclean-a")
        assert contract.clause("inconsistent_offsets", cluster="B").level is level
        assert contract.clause("inconsistent_offsets", cluster="A").level is Level.ALLOWED
    assert contracts.load("cluster-mirror/strict").clause("inconsistent_offsets", cluster="B").level is Level.NEVER
    assert contracts.load("cluster-mirror/strict+unclean-a").clause("lost_write", cluster="B").level is Level.NEVER
    assert contracts.load("cluster-mirror/strict+unclean").clause("poll_skip", cluster="A").level is Level.ALLOWED


def test_a_kind_without_a_clause_is_never_allowed() -> None:
    assert contracts.load("kafka-clean").clause("something_new").level is Level.NEVER


@pytest.mark.parametrize(
    ("name", "words"),
    [("mm2-exactly-onse", "mm2-exactly-once"), ("kafka-clean+uncleann", "unclean"), ("zzz", "known: cluster-mirror/")],
)
def test_a_wrong_name_gets_the_right_ones(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        contracts.load(name)


def test_the_table_has_a_column_per_contract() -> None:
    rows = contracts.listing(verbose=True)
    assert set(rows[0]) == {"name", *contracts.names()}
    assert {row["name"] for row in contracts.listing()} >= {"kafka-clean", "+unclean"}


SWALLOWED = ("pid_swallowed", "lost_write", "ack_mismatch", "nonmonotonic_send", "torn_transaction", "pid_collision")


@pytest.mark.parametrize("revision", ["kip-2026-05", "kip-2026-07", "strict+design-producer_ids-verbatim"])
@pytest.mark.parametrize("kind", SWALLOWED)
def test_a_mirror_whose_reset_is_honoured_is_not_excused_for_swallowed_writes(revision: str, kind: str) -> None:
    excused = contracts.load(f"cluster-mirror/{revision}")
    assert excused.clause(kind, cluster="B").level is Level.EXPECTED
    assert excused.clause(kind, cluster="B").unless == "pid_reset_honoured"
    held = contracts.load(f"cluster-mirror/{revision}", able=["pid_reset_honoured"])
    assert held.clause(kind, cluster="B").level is Level.NEVER


def test_a_mirror_that_keeps_topic_ids_is_held_to_it() -> None:
    name = "cluster-mirror/kip-2026-07"
    assert contracts.load(name).clause("topic_id").level is Level.ALLOWED
    assert contracts.load(name, able=["topic_id"]).clause("topic_id").level is Level.NEVER


def test_what_a_capability_takes_back_leaves_the_other_excuses() -> None:
    """An excuse for another reason, of a modifier or of another cluster, stays."""
    name = "cluster-mirror/kip-2026-07+unclean-b"
    assert contracts.load(name, able=["pid_reset_honoured"]).clause("lost_write", cluster="B").level is Level.ALLOWED
    assert contracts.load(name, able=["pid_reset_honoured"]).clause("acl_lost").level is Level.EXPECTED


def test_every_capability_that_ends_an_excuse_is_one_that_mirrors_state() -> None:
    from harness.topology.mirror import Capability

    named = {
        clause.unless
        for name in [*contracts.names(), *(f"cluster-mirror/strict+{m}" for m in contracts.modifiers())]
        for clauses in contracts.load(name).clauses.values()
        for clause in clauses
        if clause.unless is not None
    }
    assert named
    assert named <= {str(capability) for capability in Capability}
