"""Follows docs/extending.md in a copy of the tree: its templates, put where it says, pass every check."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("harness", "mirrors", "workloads", "nemeses", "checkers", "tests", "docs", "compose", "examples")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
TEMPLATE = re.compile(r"```python (\S+\.py)\n(.*?)```", re.DOTALL)
LIMIT_S = 600


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
    path.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the templates and the lines that the page asks for."""
    tree = tmp_path_factory.mktemp("extending")
    unused = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, tree / name, ignore=unused)
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    templates = dict(TEMPLATE.findall((ROOT / "docs/extending.md").read_text(encoding="utf-8")))
    assert set(templates) == {
        "nemeses/link_blink.py",
        "checkers/clients/oversized_value.py",
        "tests/spark/told_oversized.py",
    }
    for name, text in templates.items():
        (tree / name).write_text(text, encoding="utf-8")
    nemeses = tree / "nemeses/__init__.py"
    edit(nemeses, "from nemeses.link_degrade", "from nemeses.link_blink import LinkBlink\nfrom nemeses.link_degrade")
    edit(nemeses, "    LinkDegrade(),\n", "    LinkDegrade(),\n    LinkBlink(),\n")
    edit(
        tree / "checkers/__init__.py", '    "clients.thin",\n', '    "clients.oversized_value",\n    "clients.thin",\n'
    )
    never = "[contract.kafka-clean.never]\n"
    edit(tree / "harness/core/contracts.toml", never, never + 'oversized_value = "values are short here"\n')
    out_of_reach = "OUT_OF_REACH: dict[str, str] = {\n"
    edit(
        tree / "tests/model/mutations/catalogue.py",
        out_of_reach,
        out_of_reach + '    "oversized_value": "the model sends short values",\n',
    )
    run(tree, "-m", "harness.cli.generated_pages")
    run(tree, "-m", "model.table")
    return tree


def run(tree: Path, *command: str) -> str:
    """The output of a Python process in the copy. Fails unless it exits with 0."""
    path = os.pathsep.join([str(tree), str(tree / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": "", "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def test_style_and_types(tree: Path) -> None:
    run(tree, "-m", "ruff", "check", "nemeses", "checkers", "tests/spark/told_oversized.py")
    run(tree, "-m", "ruff", "format", "--check", "nemeses", "checkers", "tests/spark/told_oversized.py")
    run(tree, "-m", "mypy", "-p", "nemeses", "-p", "checkers")


def test_unit_tests_of_registries_contracts_and_pages(tree: Path) -> None:
    files = ("schedule", "nemeses_parts", "contracts", "docs", "planted", "headline")
    page = "tests/unit/test_model.py::test_the_page_lists_all_mutations"
    out = run(tree, "-m", "pytest", "-q", page, *(f"tests/unit/test_{name}.py" for name in files))
    assert " passed" in out


def test_the_story_shows_its_kind_and_the_clean_twin_nothing(tree: Path) -> None:
    story = "value_of_more_than_a_thousand_characters"
    out = run(tree, "-m", "pytest", "-q", "tests/spark/test_told_histories.py", "-k", story)
    assert "2 passed" in out
