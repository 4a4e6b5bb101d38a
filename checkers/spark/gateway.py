"""Caches classes and static methods of the JVM.

PySpark asks the JVM for `functions` and for its method with every column that it creates, and Py4J caches neither:
each costs two round trips, and for a name without a package the JVM searches all of Spark's jars. That was a third of
the time of a small check.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark import SparkContext


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


def remember_classes() -> None:
    """Make PySpark's view of the running JVM cache its lookups."""
    view: Any = SparkContext._jvm
    if type(view) is JVMView:
        view.__class__ = _RememberingView
