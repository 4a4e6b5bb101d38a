"""`shatter check A B C`: one Spark session, a verdict for each, and the worst as the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parent.parent / "histories"


def test_several_histories_are_judged_in_one_session(tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_text("{torn\n")
    paths = [
        str(CASES / "C02-valid-offset-gap.jsonl"),
        str(torn),
        str(CASES / "D05-replica-divergence-fast-failover.jsonl"),
    ]
    command = [sys.executable, "-m", "harness.cli.app", "check", *paths, "--json", "--master", "local[2]"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 1, run.stderr
    documents = json.loads(run.stdout)
    assert list(documents) == paths
    assert documents[paths[0]]["valid"] is True
    assert documents[paths[1]]["error"].startswith(str(torn))
    assert documents[paths[2]]["valid"] is False
    listed = run.stderr.split("3 checked")[1]
    assert [line.split()[0] for line in listed.splitlines()[1:] if line] == ["valid", "failed", "invalid"]
