"""Imports a history in JSON lines (the format of docs/history-format.md) as a run folder; streams, any size.

One line is one event. harness.history.jsonl.events maps each `f` to rows. `time` is in milliseconds
unless `time_unit` says otherwise. `index` must grow from line to line (gaps are allowed).

It cannot see whether a history is complete: an importer knows no schedule, no floor and no final reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.core.errors import HistoryError
from harness.history.importing import RunBuilder, no_garbage_collection, refuse_foreign
from harness.history.jsonl.events import EventMapper
from harness.history.jsonl.fields import INT64, BadLineError, show, valid_text, wrong

TIME_UNITS: Final[Mapping[str, int]] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MOST_BYTES: Final = 1 << 26
"""The limit of a line, which is read whole."""
_SPLIT: Final = "write its contents as several events"
_decode: Final = msgspec.json.Decoder().decode  # a third of the time of the standard library's
_TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})


def import_jsonl(path: Path | str, run_dir: Path | str, *, time_unit: str = "ms") -> Path:
    """Read the file and make `run_dir` a stored run of it; returns `run_dir`. run.json says `source: jsonl`.

    Raises HistoryError that names the file, the line and what was expected; nothing is left of a failed import.
    Raises StorageError when `run_dir` cannot be written.
    """
    path = Path(path)
    if time_unit not in TIME_UNITS:
        raise HistoryError(f"time unit {time_unit!r} does not exist; there are {', '.join(TIME_UNITS)}")
    refuse_foreign(path)
    with RunBuilder(run_dir, source="jsonl") as builder, no_garbage_collection():
        events = EventMapper(builder)
        lines = _read(path, events, TIME_UNITS[time_unit])
        if not lines:
            raise HistoryError(f"{path} holds no event; expected one JSON object a line")
        events.finish()
        names = asdict(events.renames())
        return builder.finish(run_id=path.stem, imported_from=path.name, lines=lines, time_unit=time_unit, **names)


def _read(path: Path, events: EventMapper, unit: int) -> int:
    number = 0
    count = 0
    last = -INT64
    try:
        with path.open("rb") as source:
            for raw in iter(partial(source.readline, MOST_BYTES + 1), b""):
                number += 1
                if len(raw) > MOST_BYTES:
                    raise BadLineError(f"expected at most {MOST_BYTES:,} bytes in a line, found more; {_SPLIT}")
                if raw.isspace():
                    continue
                line = _parse(raw)
                try:
                    index, process, type_ = line["index"], line["process"], line["type"]
                    f, time = line["f"], line["time"]
                except KeyError as error:
                    raise BadLineError(f"expected fields index, process, type, f, time; {error} is missing") from None
                if type(index) is not int or not -INT64 <= index < INT64:
                    raise wrong(line, "index", "an integer")
                if index <= last:
                    raise wrong(line, "index", f"greater than {last} of the line before")
                if type(process) is int:
                    process = str(process)
                elif type(process) is not str:
                    raise wrong(line, "process", "a string or an integer")
                if type(type_) is not str or type_ not in _TYPES:
                    raise wrong(line, "type", "invoke, ok, fail or info")
                if type(time) is not int and type(time) is not float:
                    raise wrong(line, "time", "a number")
                if type(f) is not str:
                    raise wrong(line, "f", "a string")
                process = valid_text(process, 'field "process"')
                events.event(line, index, process, type_, f, _nanoseconds(time, unit))
                last = index
                count += 1
    except BadLineError as error:
        raise HistoryError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}; give a file in JSON lines") from error
    return count


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        line = _decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadLineError(f"expected a JSON object, but it is not JSON: {error}") from None
    if type(line) is not dict:
        raise BadLineError(f"expected a JSON object, found {show(line)}")
    return line


def _nanoseconds(time: float, unit: int) -> int:
    try:
        time_ns = int(time * unit) if type(time) is float else time * unit
    except (OverflowError, ValueError):
        time_ns = INT64
    if time_ns < 0:
        raise BadLineError(f'expected field "time" to be 0 or more, found {time}')
    if time_ns >= INT64:
        raise BadLineError(f'expected field "time" to fit 64 bits in nanoseconds, found {time}')
    return int(time_ns)
