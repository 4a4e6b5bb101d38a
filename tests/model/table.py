"""The table of mutations in docs/trust.md: `PYTHONPATH=tests:. python -m model.table` rewrites it."""

from __future__ import annotations

from pathlib import Path

from checkers.catalogue import CATALOGUE
from model.mutations.catalogue import MUTATIONS, OUT_OF_REACH

PAGE = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- mutations -->\n", "<!-- end of mutations -->\n"


def table() -> str:
    """Markdown: one row per mutation, and the kinds that none covers."""
    rows = ["| mutation | must be reported as | may come with it, because |", "|---|---|---|"]
    order = list(CATALOGUE)
    for m in sorted(MUTATIONS.values(), key=lambda m: order.index(m.kind)):
        form = f" / {m.form}" if m.form else ""
        may = "; ".join(f"`{kind}`: {why}" for kind, why in m.may.items())
        rows.append(f"| {m.what} | `{m.kind}`{form} | {may} |")
    rows += ["", "Kinds without a mutation:", ""]
    rows += [f"- `{kind}`: {why}" for kind, why in OUT_OF_REACH.items()]
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page with its table rewritten."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
