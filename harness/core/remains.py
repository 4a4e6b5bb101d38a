"""Finds and removes what killed checks left on the disk: temporary folders, and scratch in the folders of runs."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from harness.core.atomic_files import refuse_folder, refuse_target
from harness.core.errors import StorageError
from harness.core.owners import OWNER_FILE, PREFIX, abandoned

RESULTS: Final = "results"
SCRATCH: Final = "scratch-"
_EARLIER: Final = re.compile(r"shatter-[a-z0-9_]{8}")  # names from versions without owner files


@dataclass(frozen=True)
class Remains:
    """A folder that was left behind."""

    kind: Literal["temporary folder", "scratch folder"]
    name: str


def remains(runs: Path) -> list[Remains]:
    """Folders whose process is gone: among the machine's temporary ones, and in the runs of this folder."""
    found = [Remains("temporary folder", str(path)) for path in _temporary() if abandoned(path)]
    return found + [Remains("scratch folder", str(path)) for run in _folders(runs) for path in stale_scratch(run)]


def remove(found: Iterable[Remains]) -> list[Remains]:
    """Remove them; returns those that are gone."""
    removed = []
    for one in found:
        shutil.rmtree(one.name, ignore_errors=True)
        if not Path(one.name).exists():
            removed.append(one)
    return removed


def stale_scratch(run: Path) -> list[Path]:
    """The scratch folders that dead checks left in a run."""
    results = run / RESULTS
    if results.is_symlink():
        return []
    return [path for path in _folders(results) if path.name.startswith(SCRATCH) and abandoned(path)]


def ready_results(run: Path) -> None:
    """Before a check: make sure that its verdict can be stored in the run's folder, and remove scratch of dead checks.

    Raises: StorageError naming what is in the way: a link, a device, a folder that cannot be written.
    """
    results = run / RESULTS
    refuse_folder(results)
    refuse_target(run / "results.json")
    try:
        results.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=results), tempfile.TemporaryFile(dir=run):
            pass
    except OSError as error:
        raise StorageError(
            f"nothing can be written to {error.filename or results}: {error.strerror}; a verdict is stored in the "
            "run's folder, so make it writable, free space there, or copy the run elsewhere"
        ) from error
    remove(Remains("scratch folder", str(path)) for path in stale_scratch(run))


def _temporary() -> Iterator[Path]:
    for path in _folders(Path(tempfile.gettempdir())):
        if path.name.startswith(PREFIX) and ((path / OWNER_FILE).exists() or _EARLIER.fullmatch(path.name)):
            yield path


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
