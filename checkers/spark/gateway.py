"""Classes and static methods of the JVM, asked for once.

PySpark asks the JVM for `functions` and for its method with every column that it makes, and Py4J remembers neither:
each costs two round trips, and for a name without a package the JVM looks through all of Spark's jars. That was a
third of the time of a small check.
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
    """Let PySpark's view of the JVM that runs remember what it finds."""
    view: Any = SparkContext._jvm
    if type(view) is JVMView:
        view.__class__ = _RememberingView
