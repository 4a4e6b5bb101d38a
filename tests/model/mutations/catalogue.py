"""All mutations, and the kinds that no mutation covers, each with the reason and with what tests it instead."""

from __future__ import annotations

from model.mutations import access, clients, groups, isolation, mirrored, producers, reported, stops, stores, translated
from model.mutations.base import MUTATIONS, Mutation

__all__ = ["MUTATIONS", "OUT_OF_REACH", "Mutation"]

MODULES = (clients, isolation, mirrored, stops, producers, groups, access, stores, translated, reported)
OUT_OF_REACH: dict[str, str] = {
    "cycle_G0": "Kafka allows it, and clean examples already contain it; planted in tests/spark",
    "thin": "the floor applies to the whole run, and a run packs many examples; planted in tests/spark",
    "duplicate_or_aborted": "it needs a destination without any log; planted in tests/spark",
    "state_key_skew": "all examples of a run share one mirror state topic; planted in tests/spark",
}
