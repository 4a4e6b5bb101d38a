"""A Spark standalone cluster on loopback: master and workers as separate processes, from pyspark's own jars."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from checkers.spark.session import find_java
from harness.core.wait import wait_until

SPARK = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
STARTED_S, STOPPED_S = 90.0, 15.0
_URL = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_LOOPBACK = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


@contextmanager
def cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """The cluster's URL; all processes are always stopped at the end. Logs and executors' files go to `folder`."""
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder / "master.log", f"{CLASSES}.master.Master", *_LOOPBACK))
        url = _said(folder / "master.log", _URL, "the Spark master to say its URL")
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        for log in logs:
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / log.stem))
            stack.enter_context(_daemon(log, f"{CLASSES}.worker.Worker", *_LOOPBACK, *room, url))
        for log in logs:
            _said(log, re.compile(r"(Successfully registered with master)"), f"{log.stem} to register with {url}")
        yield url


@contextmanager
def _daemon(log: Path, name: str, *arguments: str) -> Iterator[None]:
    """One process and its children, in their own process group."""
    own = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = {**os.environ, **own, "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), name, *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        if not _alive(process.pid):
            break
        os.killpg(process.pid, how)
        try:
            process.wait(STOPPED_S)
        except subprocess.TimeoutExpired:
            continue
    # The group's leader has exited; its executors may still be exiting.
    wait_until(lambda: not _alive(process.pid), timeout_s=STOPPED_S, what=f"process group {process.pid} to end")


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _said(log: Path, words: re.Pattern[str], what: str) -> str:
    def look() -> str | None:
        found = words.search(log.read_text("utf-8", "replace"))
        return found[1] if found else None

    return wait_until(
        look,
        timeout_s=STARTED_S,
        what=what,
        instead=lambda: f"its log ends: {log.read_text('utf-8', 'replace')[-2000:]}",
    )
