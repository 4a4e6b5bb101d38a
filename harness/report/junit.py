"""JUnit XML of a campaign, for CI systems: one test case per test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from harness.report.summary import TestOutcome


def junit_xml(name: str, outcomes: Sequence[TestOutcome]) -> str:
    """One `testsuite`. Invalid → failure, unknown → failure of type `unknown`, a failed program → error.

    JUnit knows no third verdict; `unknown` must not pass a gate, so it is a failure that says what it is.
    """
    suite = ET.Element(
        "testsuite",
        name=name,
        tests=str(len(outcomes)),
        failures=str(sum(o.verdict in ("invalid", "unknown") for o in outcomes)),
        errors=str(sum(o.verdict == "failed" for o in outcomes)),
        skipped=str(sum(o.verdict == "not run" for o in outcomes)),
        time=f"{sum(o.seconds for o in outcomes):.1f}",
    )
    for outcome in outcomes:
        case = ET.SubElement(suite, "testcase", classname=name, name=outcome.name, time=f"{outcome.seconds:.1f}")
        if outcome.verdict in ("invalid", "unknown"):
            ET.SubElement(case, "failure", type=outcome.verdict, message=outcome.why).text = "\n".join(outcome.lines())
        elif outcome.verdict == "failed":
            ET.SubElement(case, "error", type="failed", message=outcome.why).text = outcome.why
        elif outcome.verdict == "not run":
            ET.SubElement(case, "skipped", message=outcome.why)
        if outcome.run is not None:
            ET.SubElement(case, "system-out").text = f"run {outcome.run}\n" + "\n".join(outcome.lines())
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_junit(path: Path, name: str, outcomes: Sequence[TestOutcome]) -> None:
    """Write the XML to a file, its folder made when absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(junit_xml(name, outcomes), encoding="utf-8")
