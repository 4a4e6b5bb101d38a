"""The tree of packages in docs/architecture.md, from their docstrings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("harness", "mirrors", "workloads", "nemeses", "checkers")
_SECTION = re.compile(r"(<!-- tree -->\n).*?(<!-- end of tree -->)", re.DOTALL)


def with_tree(page: str) -> str:
    """The page with its section of the tree written again."""
    return _SECTION.sub(lambda found: f"{found[1]}{_tree()}{found[2]}", page)


def _tree() -> str:
    lines = ["| package | what it is | modules |", "|---|---|---|"]
    lines += [_row(package) for top in TOPS for package in _packages(ROOT / top)]
    layers = " → ".join(f"`{layer}`" for layer in _layers())
    return "\n".join(lines) + f"\n\nLayers, the upper ones first: {layers}.\n"


def _packages(folder: Path) -> Iterator[Path]:
    yield folder
    for child in sorted(folder.iterdir()):
        if (child / "__init__.py").is_file():
            yield from _packages(child)


def _row(package: Path) -> str:
    source = (package / "__init__.py").read_text(encoding="utf-8")
    about = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
    modules = sorted(path.stem for path in package.glob("*.py") if not path.stem.startswith("__"))
    return f"| `{package.relative_to(ROOT)}/` | {about} | {', '.join(modules)} |"


def _layers() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = document["tool"]["importlinter"]["contracts"][0]
    return [str(layer) for layer in contract["layers"]]
