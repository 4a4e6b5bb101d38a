"""Options of a mirror, as `--mirror-option NAME=VALUE`: one dataclass field each, made by `option`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from harness.core.errors import UsageError
from harness.core.hints import closest

T = TypeVar("T")


def option(default: T, doc: str) -> T:
    """A field with its default, text or a number above 0, and what it does."""
    made: T = field(default=default, metadata={"doc": doc})
    return made


def option_docs(kind: type[Any]) -> Mapping[str, str]:
    """Name of each option → what it does and its default."""
    return {f.name: f"{f.metadata['doc']}; default {f.default or 'none'}" for f in fields(kind)}


def parse_options(mirror: str, kind: type[T], given: Mapping[str, str]) -> T:
    """The options of a mirror out of `NAME=VALUE` pairs. Raises: UsageError naming the option and the fix."""
    defaults: dict[str, Any] = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, text in given.items():
        known = name.replace("-", "_")
        if known not in defaults:
            raise UsageError(f"mirror {mirror} has no option {name!r}; {closest(name, list(defaults))}")
        values[known] = _value(known, text, defaults[known])
    return kind(**values)


def _value(name: str, text: str, default: Any) -> Any:
    kind: type[Any] = type(default)
    try:
        value = kind(text)
    except ValueError:
        raise UsageError(f"mirror option {name} is {text!r}; it must be a number such as {default}") from None
    if kind is not str and value <= 0:
        raise UsageError(f"mirror option {name} is {text}; it must be above 0")
    return value
