"""`run.json`: the description of a run, next to its tables; rewritten whole, atomically, on every change.

Keys that this version does not know are kept, so that other writers may add their own.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.core.bounds import shown
from harness.core.errors import HistoryError
from harness.history.jsonfile import read_json
from harness.history.runmeta import CapabilityInfo, ClusterInfo, PhaseSpan, RunMeta, TestParameters
from harness.history.schema import FORMAT_VERSION
from harness.history.writer import storage_error, sync_folder

__all__ = [
    "RUN_FILE",
    "CapabilityInfo",
    "ClusterInfo",
    "PhaseSpan",
    "RunFile",
    "RunMeta",
    "TestParameters",
    "read_meta",
]

RUN_FILE = "run.json"


class RunFile:
    """run.json of one folder. Thread-safe; every update is on the disk when the call returns."""

    def __init__(self, run_dir: Path, meta: RunMeta) -> None:
        self.path = run_dir / RUN_FILE
        self._lock = threading.Lock()
        self._meta = meta

    @classmethod
    def create(cls, run_dir: Path, meta: RunMeta) -> RunFile:
        """Create the folder and its run.json. Raises StorageError; HistoryError when it already holds a run."""
        if (run_dir / RUN_FILE).exists():
            raise HistoryError(f"{run_dir} already holds a run; choose another folder with --out, or delete it")
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(run_dir, error) from error
        file = cls(run_dir, meta)
        file.update()
        return file

    @classmethod
    def open(cls, run_dir: Path) -> RunFile:
        """The existing run.json, to be changed further. Raises HistoryError as `read_meta` does."""
        return cls(run_dir, read_meta(run_dir))

    @property
    def meta(self) -> RunMeta:
        """Its present contents (immutable)."""
        return self._meta

    def update(self, **changes: Any) -> RunMeta:
        """Change top-level keys, validate, write. Raises HistoryError for a value that does not fit, StorageError."""
        with self._lock:
            return self._update(changes)

    def add_note(self, note: str) -> None:
        """Append one sentence to `notes`, once."""
        with self._lock:
            if note not in self._meta.notes:
                self._update({"notes": [*self._meta.notes, note]})

    def start_phase(self, name: str, at_ns: int) -> None:
        """End the phase under way and begin another."""
        with self._lock:
            self._update({"phases": [*self._closed_phases(at_ns), PhaseSpan(name=name, start_ns=at_ns)]})

    def end_phase(self, at_ns: int) -> None:
        """End the phase under way; nothing when there is none."""
        with self._lock:
            if self._meta.phases and self._meta.phases[-1].end_ns is None:
                self._update({"phases": self._closed_phases(at_ns)})

    def _closed_phases(self, at_ns: int) -> list[PhaseSpan]:
        phases = list(self._meta.phases)
        if phases and phases[-1].end_ns is None:
            phases[-1] = phases[-1].model_copy(update={"end_ns": at_ns})
        return phases

    def _update(self, changes: dict[str, Any]) -> RunMeta:
        if changes:
            merged = {**self._meta.model_dump(), **{k: _plain(v) for k, v in changes.items()}}
            try:
                meta = RunMeta.model_validate(merged)
            except ValidationError as error:
                raise HistoryError(f"{self.path}: {_first(error)}") from error
        else:
            meta = self._meta
        temporary = self.path.with_name(f".{RUN_FILE}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8", errors="backslashreplace") as sink:
                json.dump(meta.model_dump(mode="json"), sink, indent=1, ensure_ascii=False)
                sink.write("\n")
                sink.flush()
                os.fsync(sink.fileno())
            temporary.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            with suppress(OSError):  # what cannot be written may not be removable either
                temporary.unlink()
            raise storage_error(self.path.parent, error) from error
        self._meta = meta
        return meta


def read_meta(run_dir: Path) -> RunMeta:
    """Read run.json. Raises HistoryError: no such folder, not a run, torn, of a later format version, malformed."""
    path = run_dir / RUN_FILE
    if not run_dir.exists():
        raise HistoryError(f"{run_dir} does not exist; give the folder of a run (the one that holds {RUN_FILE})")
    if not run_dir.is_dir():
        raise HistoryError(f"{run_dir} is not a folder; give the folder of a run (the one that holds {RUN_FILE})")
    mend = 'fix it by hand, or write {"format_version": 1, "run_id": "NAME"} into it to check the tables alone'
    try:
        data = read_json(path, mend=mend)
    except FileNotFoundError:
        raise HistoryError(f"{run_dir} is not a run: it holds no {RUN_FILE}") from None
    version = data.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise HistoryError(f"{path}: format_version must be a positive integer, not {shown(version)}")
    if version > FORMAT_VERSION:
        raise HistoryError(
            f"{path} is of format version {version}, this shatter reads up to {FORMAT_VERSION}; upgrade shatterproof"
        )
    try:
        return RunMeta.model_validate(data)
    except ValidationError as error:
        raise HistoryError(f"{path}: {_first(error)}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    where = ".".join(str(part) for part in detail["loc"]) or "the object"
    return f"{where}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
