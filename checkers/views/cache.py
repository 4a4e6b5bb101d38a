"""Views that are built once, also when several checkers ask for them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

Owner = TypeVar("Owner", bound="Locked")
Value = TypeVar("Value")


class Locks:
    """One lock per name. While a view is being built no other thread builds it; building it may request other views."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}

    def __getitem__(self, name: str) -> threading.RLock:
        with self._lock:
            return self._locks.setdefault(name, threading.RLock())


class Locked(Protocol):
    """An owner of views."""

    locks: Locks


def built_once(owner: Locked, name: str, build: Callable[[], Value]) -> Value:
    """What `build` makes, made when the owner is first asked for it under this name."""
    built: dict[str, Any] = owner.__dict__
    with owner.locks[name]:
        if name not in built:
            built[name] = build()
    value: Value = built[name]
    return value


class view(Generic[Owner, Value]):  # noqa: N801 (used like property)
    """A `cached_property` for objects that threads share; its owner has `locks`."""

    def __init__(self, build: Callable[[Owner], Value]) -> None:
        self._build = build
        self._name = build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Owner]) -> view[Owner, Value]: ...

    @overload
    def __get__(self, owner: Owner, kind: type[Owner]) -> Value: ...

    def __get__(self, owner: Owner | None, kind: type[Owner]) -> Value | view[Owner, Value]:
        if owner is None:
            return self
        return built_once(
            owner, self._name, lambda: self._build(owner)
        )  # found in its __dict__ first, once it is built
