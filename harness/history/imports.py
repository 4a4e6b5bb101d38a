"""Foreign histories as a run's folder: `FILE.jsonl` (docs/history-format.md) or `FILE.edn` (Jepsen)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.core.errors import HistoryError
from harness.core.owners import temporary_folder


def _importers() -> Mapping[str, Callable[[Path, Path], object]]:
    from harness.history.edn.importer import import_edn
    from harness.history.jsonl.importer import import_jsonl

    return {".jsonl": import_jsonl, ".edn": import_edn}


@contextmanager
def as_run_folder(path: Path, *, keep: Path | None = None) -> Iterator[Path]:
    """The folder of a stored run: `path` itself, or what an imported file became.

    keep: folder for an imported history; without it the folder is temporary and gone after the block.
    Raises: HistoryError when there is nothing at `path`, or it is neither a run nor a history we can read.
    """
    if path.is_dir():
        yield path
        return
    if not path.exists():
        raise HistoryError(f"{path} does not exist; give a run's folder, or a history: FILE.jsonl or FILE.edn")
    importer = _importers().get(path.suffix)
    if importer is None:
        raise HistoryError(f"{path} is neither a run's folder nor a history: it must end in .jsonl or .edn")
    if keep is not None:
        importer(path, keep)
        yield keep
        return
    with temporary_folder("check") as folder:
        target = folder / path.stem
        importer(path, target)
        yield target
