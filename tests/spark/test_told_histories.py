"""Histories in JSON lines after published reports: each shows exactly its kinds with its fault and none without.

Many stories go through the importer and the judge in one file per contract.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import told_chains
import told_cycles
import told_groups
import told_mirrors
import told_mm2
import told_values
from jsonl_story import Pack
from pyspark.sql import SparkSession

for _file in sorted(Path(__file__).parent.glob("told_*.py")):
    import_module(_file.stem)  # its stories add themselves to their packs

PACKS: dict[str, Pack] = {
    "kafka": told_cycles.KAFKA,
    "strict": told_chains.STRICT,
    "access": told_groups.ACCESS,
    "truncating": told_mirrors.TRUNCATING,
    "unclean": told_mirrors.UNCLEAN,
    "mm2": told_mm2.MM2,
    "exactly": told_mm2.EXACTLY,
    "values": told_values.KAFKA,
    "copies": told_values.EXACTLY,
    "unlogged": told_values.UNLOGGED,
}
Found = dict[str, dict[str, list[str]]]
_JUDGED: dict[str, Found] = {}


def found(pack: str, spark: SparkSession, factory: pytest.TempPathFactory) -> Found:
    """The judge's findings in a pack; judged once."""
    if pack not in _JUDGED:
        _JUDGED[pack] = {}  # also when it fails: the other stories would only fail again
        _JUDGED[pack] = PACKS[pack].judged(spark, factory.mktemp(pack))
    return _JUDGED[pack]


@pytest.mark.parametrize(("pack", "story"), [(p, s) for p, pack in PACKS.items() for s in pack.told()])
def test_story(pack: str, story: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = found(pack, spark, tmp_path_factory)[story]
    assert set(kinds) == PACKS[pack].expected(story), kinds


@pytest.mark.parametrize("pack", PACKS)
def test_nothing_else_is_named(pack: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert set(found(pack, spark, tmp_path_factory)) == set(PACKS[pack].told())
