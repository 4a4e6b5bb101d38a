"""Fewer requests to the JVM.

PySpark asks the JVM for `functions` and for its method with every column that it creates, and Py4J caches neither:
each costs two round trips, and for a name without a package the JVM searches all of Spark's jars. That was a third of
the time of a small check. And Py4J tells the JVM of each object that Python no longer holds in a request of its own,
which was nearly half of all requests: here a thousand go together.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from py4j.clientserver import JavaClient
from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark import SparkContext

_TOGETHER: Final = 1000
"""How many objects that Python no longer holds the JVM keeps until it is told."""


class _RememberingView(JVMView):  # type: ignore[misc]
    """Py4J's view of the JVM; a class that was found is an attribute from then on."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaClass:
            found.__class__ = _RememberingClass
            self.__dict__[name] = found
        return found


class _RememberingClass(JavaClass):  # type: ignore[misc]
    """A class of the JVM; a static method that was found is an attribute from then on. Values of fields may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if type(found) is JavaMember:
            self.__dict__[name] = found
        return found


class _CollectingClient(JavaClient):  # type: ignore[misc]
    """Py4J's connection to the JVM; objects that Python no longer holds are released many at a time."""

    _unheld: list[str]
    _held: Any
    _split: Any

    def garbage_collect_object(self, target_id: str, enqueue: bool = True) -> None:
        """Called in any thread, at any time, when an object is freed (`enqueue`), and by the thread that releases
        objects with what was queued then: here, the ids of many."""
        if not enqueue:
            with suppress(Exception):  # as Py4J does: it cannot be helped, e.g. because the JVM has ended
                self._held.removeAll(self._split.getStringCollection(target_id))
            return
        self._unheld.append(target_id)
        if len(self._unheld) >= _TOGETHER:
            freed, self._unheld = self._unheld, []
            self.finalizer_deque.appendleft((self, ",".join(freed)))


def save_requests() -> None:
    """Make PySpark's connection to the running JVM cache its lookups, and release objects together."""
    view: Any = SparkContext._jvm
    gateway: Any = SparkContext._gateway
    if type(view) is JVMView:
        view.__class__ = _RememberingView
        client = gateway._gateway_client
        client._held = gateway.java_gateway_server.getGateway().getBindings().keySet()
        client._split = view.org.apache.hadoop.util.StringUtils
        client._unheld = []
        client.__class__ = _CollectingClient
