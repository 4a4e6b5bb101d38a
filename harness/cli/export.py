"""`shatter export`: a run as a history of Jepsen's."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.core.errors import EXIT_VALID
from harness.core.progress import RichDisplay, phase


def export_run(path: Path, *, edn: Path, cluster: str) -> int:
    """`shatter export`."""
    from harness.history.edn.importer import export_edn
    from harness.history.edn.sidecar import sentence

    console = Console()
    display = RichDisplay(console)
    with phase(display, "export"):
        exported = export_edn(path, edn, cluster=cluster)
        display.say(str(edn))
        if exported.tables_left_out:
            display.note(sentence(exported.tables_left_out))
    return EXIT_VALID
