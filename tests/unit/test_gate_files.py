"""The files that a gate leaves for CI: current after every test, never stale, never written over foreign files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.cli.campaigns import gate_exit_code
from harness.cli.gate_files import GateFiles
from harness.core.errors import EXIT_FAILED, EXIT_INVALID, EXIT_VALID, UsageError
from harness.report.junit import junit_xml
from harness.report.summary import TestOutcome, markdown, table

pytestmark = pytest.mark.unit


def outcome(name: str, verdict: str, why: str = "because") -> TestOutcome:
    return TestOutcome(name=name, verdict=verdict, why=why, seconds=1.0)


def counts(file: Path) -> dict[str, str | None]:
    suite = ET.fromstring(file.read_text(encoding="utf-8"))
    return {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}


def test_what_an_earlier_run_left_is_gone_before_the_first_test(tmp_path: Path) -> None:
    junit, summary = tmp_path / "new" / "junit.xml", tmp_path / "summary.md"
    summary.write_text("# yesterday: 2 valid")
    files = GateFiles(name="c", tests=["one", "two"], junit=junit, summary=summary)
    files.prepare()
    assert not junit.exists()
    assert not summary.exists()
    files.write([])
    assert counts(junit) == {"tests": "2", "failures": "0", "errors": "2", "skipped": "0"}
    files.write([outcome("one", "valid")])
    assert counts(junit) == {"tests": "2", "failures": "0", "errors": "1", "skipped": "0"}
    assert "1 valid, 1 not run" in summary.read_text(encoding="utf-8")
    files.write([outcome("one", "valid"), outcome("two", "valid")])
    assert counts(junit) == {"tests": "2", "failures": "0", "errors": "0", "skipped": "0"}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["junit.xml", "new", "summary.md"]


def test_places_that_cannot_be_written_are_refused_before_the_first_test(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.toml"
    campaign.write_text("[[test]]")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(campaign)
    same = tmp_path / "a" / ".." / "out"
    (tmp_path / "a").mkdir()
    for given, said in (
        ({"junit": tmp_path / "out", "summary": same}, "both name"),
        ({"junit": tmp_path}, "is a folder"),
        ({"summary": tmp_path / "file" / "x"}, "--summary"),
        ({"junit": campaign}, "which the campaign is read from"),
        ({"junit": tmp_path / "link"}, "--junit"),
        ({"junit": Path("/dev/full")}, "is a device"),
    ):
        with pytest.raises(UsageError, match=said):
            GateFiles(name="c", tests=["one"], taken=[campaign], **given).prepare()
    assert campaign.read_text() == "[[test]]"
    assert (tmp_path / "link").is_symlink()


def test_control_characters_and_markup_are_text_everywhere() -> None:
    odd = outcome("t [/x] \x1b[31m|", "failed", "exited: \x00 \x1b]0;title\x07 \u202e")
    suite = ET.fromstring(junit_xml("release [/candidate] \x1b", [odd]))
    assert suite.get("name") == "release [/candidate] \\x1b"
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "exited: \\x00 \\x1b]0;title\\x07 \\u202e"
    text = markdown("c \x1b", [odd])
    assert "\x1b" not in text
    assert "\\|" in text
    shown = table("release [/candidate]", [odd])
    assert str(shown.title) == "Campaign release [/candidate]"
    assert [str(cell) for cell in shown.columns[0].cells] == ["t [/x] \\x1b[31m|"]


def test_a_failed_write_affects_neither_the_other_file_nor_the_old_one(tmp_path: Path) -> None:
    junit, summary = tmp_path / "o" / "junit.xml", tmp_path / "summary.md"
    files = GateFiles(name="c", tests=["one", "two"], junit=junit, summary=summary)
    files.prepare()
    assert files.write([]) == []
    junit.unlink()
    junit.mkdir()
    (problem,) = files.write([outcome("one", "valid")])
    assert str(junit) in problem
    assert "1 valid, 1 not run" in summary.read_text(encoding="utf-8")
    junit.rmdir()
    junit.parent.rmdir()  # the folder was removed
    assert files.write([outcome("one", "valid"), outcome("two", "valid")]) == []
    assert counts(junit) == {"tests": "2", "failures": "0", "errors": "0", "skipped": "0"}


def test_a_gate_continues_without_its_file_and_ends_with_an_error(tmp_path: Path) -> None:
    """The engine hangs up on every call, so that both tests fail; during the first, JUnit's place is lost."""
    (tmp_path / "c.toml").write_text('name = "c"\n[[test]]\nname = "one"\n[[test]]\nname = "two"\n')
    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    with socket.create_server(("127.0.0.1", 0)) as engine:
        engine.settimeout(60)
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "harness.cli.app",
                "gate",
                "c.toml",
                "--junit",
                str(junit),
                "--summary",
                str(summary),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "DOCKER_HOST": f"tcp://127.0.0.1:{engine.getsockname()[1]}",
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        call, _ = engine.accept()
        junit.unlink()
        junit.mkdir()
        call.close()
        engine.close()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 255, said
    assert said.count(f"warning: {junit} is a folder") == 2
    assert f"error: {junit} is a folder" in said
    assert "Traceback" not in said
    assert "# c: 2 failed" in summary.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verdicts", "problems", "code"),
    [
        (["valid"], [], EXIT_VALID),
        (["valid"], ["x"], EXIT_FAILED),
        (["unknown"], ["x"], EXIT_FAILED),
        (["invalid", "valid"], ["x"], EXIT_INVALID),
    ],
)
def test_lost_files_are_an_error_and_hide_no_invalid_test(verdicts: list[str], problems: list[str], code: int) -> None:
    assert gate_exit_code([outcome(v, v) for v in verdicts], problems) == code
