"""The generated pages are up to date; names in prose exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.generated_pages import pages
from harness.core.testspec import TestSpec

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == pages()[name], f"docs/{name} is old: run `make docs`"


def test_every_key_of_a_campaign_is_documented_and_no_other() -> None:
    text = (ROOT / "docs/campaigns.md").read_text()
    table = text[text.index("| key |") : text.index("The exit code")]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`([a-z-]+)`", row.split("|")[1])}
    assert documented == {field.replace("_", "-") for field in TestSpec.model_fields}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
