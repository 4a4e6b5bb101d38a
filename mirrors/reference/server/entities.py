"""Responses of kio.schema in the version that a client asked for."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from harness.wire import frames


def kinds_of(api_key: int, version: int) -> Any:
    """The module of kio that has a response's classes."""
    return sys.modules[frames.response_type(api_key, version).__module__]


def make(kind: Any, **values: Any) -> Any:
    """An entity with the values that its version has fields for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})
