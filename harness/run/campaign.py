"""Campaigns: a TOML file → a list of tests; the tests run one after the other → a summary."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from harness.core.bounds import shown
from harness.core.errors import UsageError
from harness.core.given import parse_toml, read_given
from harness.core.hints import closest
from harness.core.testspec import TestSpec, parse_spec

TOP_KEYS = ("name", "defaults", "test")
MOST_TESTS = 10_000
"""Of one campaign: at a minute each they take a week."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A named list of tests, with unique names, in the order they run. where: the file, or the built-in campaign;
    text: its TOML."""

    name: str
    tests: tuple[TestSpec, ...]
    where: str
    text: str


def builtin_campaigns() -> dict[str, str]:
    """Name → TOML text of the campaigns that come with the program."""
    folder = resources.files("harness.run") / "campaigns"
    return {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in sorted(folder.iterdir(), key=lambda item: item.name)
        if item.name.endswith(".toml")
    }


def load_campaign(file: str) -> Campaign:
    """A campaign from a TOML file, or a built-in one by its name.

    Raises: UsageError when there is no such file, it is not TOML, or a key is unknown or out of range.
    """
    path = Path(file)
    builtin = builtin_campaigns()
    if not path.exists() and file in builtin:
        return parse_campaign(builtin[file], where=f"campaign {file}")
    if not path.exists():
        raise UsageError(
            f"campaign file {file} does not exist; give a TOML file or one of the built-in campaigns: "
            + ", ".join(builtin)
        )
    return parse_campaign(read_given(file, what="campaign file"), where=file)


def parse_campaign(text: str, *, where: str) -> Campaign:
    """A campaign from TOML text. See docs/campaigns.md for the keys.

    `[defaults]` gives keys to every test. In a `[[test]]`, a sub-table `matrix` gives lists: the test is run for
    every combination of their values.
    Raises: UsageError for what is not TOML, an unknown key, a value out of range, or more than MOST_TESTS tests.
    """
    document = parse_toml(text, where=where)
    for key in document:
        if key not in TOP_KEYS:
            raise UsageError(f"{where}: unknown key {key!r}; {closest(key, TOP_KEYS)}")
    defaults = _table(document.get("defaults", {}), where=f"{where}, [defaults]")
    tests = document.get("test", [])
    if not isinstance(tests, list) or not tests:
        raise UsageError(f"{where} holds no test; write at least one [[test]] table")
    specs: list[TestSpec] = []
    for number, raw in enumerate(tests, 1):
        place = f"{where}, [[test]] number {number}"
        specs += _expand({**defaults, **_table(raw, where=place)}, where=place, room=MOST_TESTS - len(specs))
    name = document.get("name", "campaign")
    if not isinstance(name, str):
        raise UsageError(f"{where}: key 'name' is {shown(name)}: it must be a string")
    return Campaign(name=name, tests=_unique(specs, where=where), where=where, text=text)


def _table(value: object, *, where: str) -> dict[str, Any]:
    """The keys of a table, with dashes."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must be a table of keys, not {shown(value)}")
    table = {key.replace("_", "-"): inner for key, inner in value.items()}
    if len(table) < len(value):
        twice = next(key for key in value if key.replace("_", "-") != key and key.replace("_", "-") in value)
        raise UsageError(f"{where}: key {twice!r} appears twice, with '-' and with '_'; leave one out")
    return table


def _expand(values: dict[str, Any], *, where: str, room: int) -> list[TestSpec]:
    matrix = _table(values.pop("matrix", {}), where=f"{where}, matrix")
    for key, options in matrix.items():
        if key == "name":
            raise UsageError(
                f"{where}, matrix: key 'name' cannot vary, the tests of a matrix differ in the other keys; "
                "put name above [test.matrix]"
            )
        if not isinstance(options, list) or not options:
            raise UsageError(f"{where}, matrix: key {key!r} must be a list of at least one value")
    count = math.prod(len(options) for options in matrix.values())
    if count > room:
        raise UsageError(
            f"{where} makes {count:,} tests from its matrix, a campaign has at most {MOST_TESTS:,} (about a week at a "
            "minute each); leave values out"
        )
    specs = []
    base = values.get("name")
    for combination in itertools.product(*matrix.values()):
        chosen = dict(zip(matrix, combination, strict=True))
        merged = {**values, **chosen}
        if "name" not in merged or (base and chosen):
            merged["name"] = _name(
                str(base or merged.get("mirror", TestSpec.model_fields["mirror"].default)),
                merged if not base else chosen,
            )
        specs.append(parse_spec(merged, where=where))
    return specs


def _name(base: str, values: Mapping[str, Any]) -> str:
    parts = [base]
    for key in ("contract", "nemesis"):
        if key in values:
            chosen = values[key]
            text = "-".join(chosen) if isinstance(chosen, list) else str(chosen)
            parts.append(re.sub(r"[^a-z0-9.]+", "-", text.lower()))
    parts += [
        re.sub(r"[^a-z0-9.]+", "-", f"{key}-{value}".lower())
        for key, value in values.items()
        if key in ("seed", "brokers", "producer", "scenario", "partitions")
    ]
    return "-".join(parts)[:63].rstrip("-.")


def _unique(specs: list[TestSpec], *, where: str) -> tuple[TestSpec, ...]:
    seen: dict[str, int] = {}
    unique = []
    for spec in specs:
        count = seen.get(spec.name, 0) + 1
        seen[spec.name] = count
        unique.append(spec if count == 1 else spec.model_copy(update={"name": f"{spec.name[:59]}-{count}"}))
    names = {spec.name for spec in unique}
    if len(names) != len(unique):
        raise UsageError(f"{where}: two tests have the same name; give each [[test]] a name of its own")
    return tuple(unique)
