"""JUnit XML of a campaign, for CI systems: one test case per test."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from harness.core.plain import plain
from harness.report.summary import TestOutcome


def junit_xml(name: str, outcomes: Sequence[TestOutcome]) -> str:
    """One `testsuite`. Invalid → failure, unknown → failure of type `unknown`, a failed program → error, not run →
    error of type `not run`.

    JUnit has no third verdict; `unknown` must not pass a gate, so it is a failure of its own type. A test that was
    never run must not pass either, as a skipped one would. Control characters, which XML cannot hold, are escaped.
    """
    suite = ET.Element(
        "testsuite",
        name=plain(name),
        tests=str(len(outcomes)),
        failures=str(sum(o.verdict in ("invalid", "unknown") for o in outcomes)),
        errors=str(sum(o.verdict in ("failed", "not run") for o in outcomes)),
        skipped="0",
        time=f"{sum(o.seconds for o in outcomes):.1f}",
    )
    for outcome in outcomes:
        case = ET.SubElement(
            suite, "testcase", classname=plain(name), name=plain(outcome.name), time=f"{outcome.seconds:.1f}"
        )
        why, lines = plain(outcome.why), "\n".join(plain(line) for line in outcome.lines())
        if outcome.verdict in ("invalid", "unknown"):
            ET.SubElement(case, "failure", type=outcome.verdict, message=why).text = lines
        elif outcome.verdict != "valid":
            ET.SubElement(case, "error", type=outcome.verdict, message=why).text = why
        if outcome.run is not None:
            text = f"{plain(outcome.headline)}\nrun {plain(outcome.run)}\n{lines}"
            ET.SubElement(case, "system-out").text = text
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
