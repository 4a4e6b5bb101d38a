"""No function, method, property or variable of the product is unused, tests included (vulture)."""

from __future__ import annotations

from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[2]
PRODUCT = ("harness", "mirrors", "workloads", "nemeses", "checkers")

USED_ELSEWHERE = {
    "_active_spark_context": "PySpark reads it",
    "_instantiatedSession": "PySpark reads it",
    "ryuk_disabled": "Testcontainers reads it",
    "trust_env": "requests reads it",
    "garbage_collect_object": "Py4J calls it",
    "maxother": "reprlib reads it",
    "maxstring": "reprlib reads it",
    "model_config": "pydantic reads it",
    "tb": "an argument of __exit__",
    "__signature__": "Typer reads it",
    "__annotations__": "Typer reads it",
    "format_version": "a key of run.json",
    "shatter_version": "a key of run.json",
    "final_reads_cut_off": "a key of run.json",
    "processed": "a column of op_records",
    "real_replicas": "a key of the mirror's stored records",
    "vh": "packed by its name",
    "__init_subclass__": "Python calls it",
    "gate": "a command",
    "export": "a command",
    "kip": "a command",
    "report_command": "a command",
    "list_command": "a command",
}
WORDS = ("harness/history/ops.py", "mirrors/reference/server/settings.py")
"""Files with enumerations of a format: all its members are there, used or not."""
SCHEMAS = ("harness/wire/cluster_mirror_api.py",)
"""Files with messages of a protocol: all their fields and codes are there, used or not."""


def test_no_dead_code() -> None:
    looked = Vulture()
    looked.scavenge([ROOT / name for name in (*PRODUCT, "tests", "bench")])
    found = []
    for item in looked.get_unused_code(min_confidence=60):
        place = Path(item.filename).relative_to(ROOT)
        word = place.as_posix() in WORDS and str(item.name).isupper()
        word = word or (place.as_posix() in SCHEMAS and item.typ == "variable")
        if place.parts[0] in PRODUCT and item.name not in USED_ELSEWHERE and not word:
            found.append(f"{place}:{item.first_lineno} {item.typ} {item.name}")
    assert found == []
