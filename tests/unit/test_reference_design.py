"""Designs: parsing, presets, and the contract of each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from checkers.catalogue import CATALOGUE
from harness.core import contracts
from harness.core.errors import UsageError
from mirrors.reference.driver.promise import HARMLESS, WRONG, contract_of, modifiers
from mirrors.reference.server.design import (
    PRESETS,
    STRICT,
    SWITCHES,
    AclSync,
    EpochBump,
    LeaderEpoch,
    design_from,
    design_values,
    parse_design,
)

pytestmark = pytest.mark.unit

SINGLE = [(s, str(v)) for s, values in SWITCHES.items() for v in values if design_values(STRICT)[s] != str(v)]


def test_arguments_count_in_their_order() -> None:
    assert parse_design([]) == STRICT
    found = parse_design(["kip-2026-07", "acl_sync=keep_local"])
    assert found == replace(PRESETS["kip-2026-07"], acl_sync=AclSync.KEEP_LOCAL)
    assert parse_design(["acl_sync=keep_local", "kip-2026-07"]) == PRESETS["kip-2026-07"]
    assert design_from(design_values(found)) == found


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("kip-2026-08", r"'kip-2026-08' is no preset .*there are: kip-2026-02, .*Did you mean 'kip-2026-0"),
        ("acl_snyc=off", r"'acl_snyc' is no switch .*Did you mean 'acl_sync'\?"),
        ("acl_sync=on", r"'on' is no value of acl_sync .*there are: keep_local, source_wins, off"),
    ],
)
def test_unknown_names_get_the_right_ones(argument: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_design([argument])


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_has_its_own_contract(name: str) -> None:
    assert contract_of(PRESETS[name]) == f"cluster-mirror/{name}"
    assert contracts.load(f"cluster-mirror/{name}").about


@pytest.mark.parametrize(("switch", "value"), SINGLE)
def test_every_other_value_than_the_right_one_has_a_modifier_or_a_reason(switch: str, value: str) -> None:
    design = parse_design([f"{switch}={value}"])
    name = f"{switch}-{value}"
    assert (name in WRONG) != (name in HARMLESS)
    if name in HARMLESS:
        assert contract_of(design) == "cluster-mirror/strict"
    else:
        assert contract_of(design) == f"cluster-mirror/strict+design-{name}"
        found = contracts.load(contract_of(design))
        assert any(c.level is contracts.Level.EXPECTED for clauses in found.clauses.values() for c in clauses)
        assert {key.split("/")[0] for key in found.clauses} <= set(CATALOGUE)


def test_kept_epochs_are_wrong_only_where_nothing_raises_the_others() -> None:
    kept = replace(STRICT, leader_epoch=LeaderEpoch.PRESERVE)
    assert modifiers(kept) == ("design-leader_epoch-preserve",)
    assert modifiers(replace(kept, epoch_bump=EpochBump.PROACTIVE)) == ()


@pytest.mark.parametrize("name", [n for n in PRESETS if n != "strict"])
def test_a_presets_contract_expects_what_its_wrong_values_bring_about(name: str) -> None:
    preset = contracts.load(f"cluster-mirror/{name}")
    for modifier in modifiers(PRESETS[name]):
        single = contracts.load(f"cluster-mirror/strict+{modifier}")
        for kind, cluster in itertools.product(single.clauses, ("A", "B", "C")):
            if single.clause(kind, cluster=cluster).level is contracts.Level.EXPECTED:
                assert preset.clause(kind, cluster=cluster).level is not contracts.Level.NEVER, (
                    modifier,
                    kind,
                    cluster,
                )
