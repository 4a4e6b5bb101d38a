"""An archive of the classes that Spark loads, which halves the time to the first answer.

    python -m checkers.judge.make_class_archive

Loading and verifying some fifteen thousand classes takes the JVM several seconds of every check. It can archive them,
ready to be mapped into memory (class data sharing, JEP 350). The archive is made once, by make, from the classes that
judging a tiny history needs, and is stored in the virtual environment; it is specific to one Java and one Spark, and
the JVM ignores one that does not match. Without it everything works, some seconds slower.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

_FOLDER = Path(sys.prefix) / "share" / "shatterproof"
QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def archive(java_home: Path) -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    try:
        release = (java_home / "release").read_text(encoding="utf-8")
    except OSError:
        release = str(java_home)
    versions = {line.split("=")[0]: line.split("=")[-1].strip('"') for line in release.splitlines()}
    return _FOLDER / f"spark-{pyspark.__version__}-java-{versions.get('JAVA_VERSION', 'unknown')}.jsa"


def options(java_home: Path) -> tuple[str, ...]:
    """Options of the JVM that use the archive, if there is one."""
    file = archive(java_home)
    return (*QUIET, f"-XX:SharedArchiveFile={file}") if file.exists() else ()
