"""`shatter clean`: removes what killed runs and checks left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.core.errors import EXIT_VALID, ShatterError
from harness.core.plain import plain
from harness.core.remains import remains, remove


def clean_up(*, everything: bool, runs: Path) -> int:
    """`shatter clean`: Docker objects, and what killed checks left on the disk, in the folders of `runs` too."""
    from harness.clusters.docker.cleanup import clean
    from harness.clusters.docker.clients import DockerClients

    left: list[Any] = list(remove(remains(runs)))
    try:
        clients = DockerClients()
        try:
            removed = clean(clients, force=everything)
        finally:
            clients.close()
    except ShatterError:
        if left:
            print_removed(left)
        raise
    print_removed([*left, *removed])
    return EXIT_VALID


def print_removed(removed: Sequence[Any]) -> None:
    """One line for each thing, and how many there were."""
    console = Console()
    for thing in removed:
        console.print(f"removed {thing.kind} {plain(thing.name)}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{len(removed)} objects removed" if removed else "nothing was left behind", highlight=False)
