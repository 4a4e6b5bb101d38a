"""What commands print."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rich.console import Console


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, nothing else."""
    write: Callable[[str], object] = Console(soft_wrap=True, markup=False, highlight=False, emoji=False).file.write
    write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
