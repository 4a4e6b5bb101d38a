"""Whole runs as a user starts them: verdicts, sabotage that must be found, interrupts, kills, gates, two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from rich.console import Console

from harness.cli.judging import check_run
from harness.clusters.docker.clients import DockerClients
from harness.clusters.docker.containers import container_name
from harness.clusters.docker.images import ImageSet
from harness.core.errors import EXIT_UNKNOWN, EXIT_USAGE, EXIT_VALID
from harness.core.progress import RichDisplay
from harness.core.signals import Interrupts
from harness.core.testspec import parse_spec
from harness.history.runfile import read_meta
from harness.report.results import Results
from harness.run.plan import make_plan
from harness.run.runner import RunResult, run_test
from harness.run.scenarios import Scenario
from tests.cluster.as_user import SMALL, SMALL_ARGS, finish, left_of, shatter, wait_for_phase


def wait_for_load(out: Path, process: subprocess.Popen[str] | None) -> Path:
    """The run's folder, once its load is running."""
    folder = wait_for_phase(out, process, "load")
    time.sleep(3)  # some records
    return folder


def sabotaged(
    images: ImageSet,
    out: Path,
    scenario: Callable[[Any], None],
    spark: SparkSession,
    **changes: Any,
) -> tuple[RunResult, Results]:
    """Run a small test with a special scenario, and judge it."""
    plan = make_plan(parse_spec({**SMALL, "contract": "mm2-exactly-once", **changes}, where="test"))
    plan = replace(plan, scenario=Scenario(name="sabotage", about="the test's own", steps=scenario))
    result = run_test(plan, images=images, out=out, display=RichDisplay(Console()), interrupts=Interrupts())
    return result, check_run(result.folder, contract=None, spark=spark)


def test_records_deleted_on_the_destination_are_mirror_loss_with_their_offsets(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    deleted: dict[int, int] = {}

    def lose(steps: Any) -> None:
        steps.settle()
        admin = steps.topology.clusters["B"].admin()
        futures = admin.delete_records([TopicPartition("append-0", 1, 5)])
        for where, future in futures.items():
            deleted[where.partition] = future.result().low_watermark

    result, results = sabotaged(images, tmp_path, lose, spark)
    assert deleted == {1: 5}
    assert (result.status, results.verdict) == ("finished", "invalid")
    loss = next(a for a in results.anomalies if a.kind == "mirror_loss")
    assert not loss.allowed
    assert {(w["topic"], w["partition"]) for w in loss.witnesses} == {("append-0", 1)}
    # B's first five offsets: the mirror's records and, in exactly-once mode, its commit markers between them.
    assert 1 <= loss.count <= 5
    assert {w["offset"] for w in loss.witnesses} <= set(range(5))
    assert {a.kind for a in results.forbidden} <= {"mirror_loss", "retention_gap"}


@pytest.mark.long
def test_records_not_mirrored_by_a_dead_mirror_are_mirror_loss(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    def die(steps: Any) -> None:
        for node in steps.mirror.nodes():
            node.kill()
        steps.write("A", seconds=3.0)
        steps.settle()

    result, results = sabotaged(images, tmp_path, die, spark, **{"settle-limit": 2})
    assert (result.status, results.verdict) == ("finished", "invalid")
    loss = next(a for a in results.anomalies if a.kind == "mirror_loss")
    assert loss.count > 20
    assert {a.kind for a in results.forbidden} <= {"mirror_loss", "stuck"}


@pytest.mark.parametrize(
    ("node", "killed", "changes"),
    [
        pytest.param("B-broker-2", False, {"brokers": 3}, marks=pytest.mark.long),
        pytest.param("toxiproxy", True, {}, marks=pytest.mark.long),
        ("mirror-1", False, {}),
    ],
)
def test_a_node_lost_for_good_under_load_is_unknown_without_anomalies(
    images: ImageSet,
    tmp_path: Path,
    spark: SparkSession,
    clients: DockerClients,
    node: str,
    killed: bool,
    changes: dict[str, Any],
) -> None:
    def strike() -> None:
        folder = wait_for_load(tmp_path, None)
        end = clients.api.kill if killed else partial(clients.api.remove_container, force=True)
        end(container_name(folder.name, node))

    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(strike)
        limits = {"time-limit": 10, "settle-limit": 3, "final-limit": 10}
        result, results = sabotaged(images, tmp_path, lambda steps: steps.settle(), spark, **{**limits, **changes})
        done.result(timeout=1)
    assert (result.status, results.verdict) == ("finished", "unknown"), results.why
    assert f"the harness could not heal: {node} is {'stopped' if killed else 'absent'}" in results.why
    assert {kind: a["never_allowed"] for kind, a in results.raw["anomalies"].items() if a["never_allowed"]} == {}


@pytest.mark.long
def test_final_reads_that_were_cut_off_make_it_unknown_and_never_valid(
    images: ImageSet, tmp_path: Path, spark: SparkSession
) -> None:
    def stop_a_broker(steps: Any) -> None:
        steps.settle()
        steps.topology.clusters["A"].brokers[1].pause()

    result, results = sabotaged(images, tmp_path, stop_a_broker, spark, **{"final-limit": 3})
    assert result.status == "finished"
    assert results.verdict == "unknown"
    assert "final reads were cut off" in results.why


def test_a_gate_is_valid_and_writes_its_files(tmp_path: Path, clients: DockerClients) -> None:
    keys = "\n".join(f"{key} = {value}" for key, value in SMALL.items())
    (tmp_path / "gate.toml").write_text(
        f'name = "small"\n[defaults]\n{keys}\n[[test]]\nname = "quiet"\ncontract = "mm2-at-least-once"\n'
        '[[test]]\nname = "paused"\nnemesis = ["mirror-pause"]\ntime-limit = 14\n'
    )
    process = shatter("gate", "gate.toml", "--junit", "o/j.xml", "--summary", "o/s.md", cwd=tmp_path)
    code, output = finish(process)
    assert code == EXIT_VALID, output
    suite = ET.parse(tmp_path / "o/j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "0")
    assert "# small: 2 valid" in (tmp_path / "o/s.md").read_text()
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 2
    for folder in runs:
        assert (folder / "report.html").exists()
        assert left_of(clients, folder) == []


def test_ctrl_c_heals_saves_and_takes_down(tmp_path: Path, clients: DockerClients) -> None:
    arguments = [*SMALL_ARGS[:-2], "--time-limit", "60", "--nemesis", "link-partition"]
    process = shatter("run", *arguments, "--out", str(tmp_path), cwd=tmp_path)
    folder = wait_for_load(tmp_path, process)
    process.send_signal(signal.SIGINT)
    code, output = finish(process, timeout_s=120)
    assert code == EXIT_UNKNOWN, output
    assert "interrupted" in output
    assert f"shatter check {folder}" in output
    assert left_of(clients, folder) == []
    assert read_meta(folder).status == "interrupted"
    assert any((folder / "evidence").rglob("*.log"))
    assert (folder / "logs" / "A-broker-1.log").stat().st_size > 0


@pytest.mark.long
def test_two_runs_at_once_and_one_of_them_killed(tmp_path: Path, clients: DockerClients, spark: SparkSession) -> None:
    first_out, second_out = tmp_path / "first", tmp_path / "second"
    first = shatter("run", *SMALL_ARGS[:-2], "--time-limit", "90", "--out", str(first_out), cwd=tmp_path)
    second = shatter("run", *SMALL_ARGS, "--seed", "5", "--json", "--out", str(second_out), cwd=tmp_path)
    folder = wait_for_load(first_out, first)
    first.kill()
    first.communicate(timeout=30)
    assert left_of(clients, folder), "a killed process cannot clean up"
    code, output = finish(shatter("clean", cwd=tmp_path), timeout_s=120)
    assert code == EXIT_VALID
    assert folder.name in output
    assert left_of(clients, folder) == []

    code, output = finish(second)
    assert code == EXIT_VALID, output
    document = json.loads(output[output.index("{\n") : output.rindex("}") + 1])
    assert document["valid"] is True
    assert document["anomalies"] == {}

    results = check_run(folder, contract=None, spark=spark)
    assert results.verdict == "unknown"
    assert "never finished" in results.why


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--nemesis", "broker-kil"], ["broker-kil", "did you mean broker-kill"]),
        (["run", "--mirror", "mm3"], ["mm3", "mm2"]),
        (["run", "--contract", "kafka-clean"], ["kafka-clean", "mm2-exactly-once"]),
        (["run", "--brokers", "12"], ["brokers", "9"]),
        (["run", "--time-limit", "3", "--nemesis", "broker-kill"], ["time limit of 3 s is too short", "at least"]),
        (["campaign", "none.toml"], ["none.toml does not exist", "default"]),
        (["list", "things"], ["things", "mirrors"]),
    ],
)
def test_bad_arguments_get_one_sentence(arguments: Sequence[str], words: Sequence[str], tmp_path: Path) -> None:
    code, output = finish(shatter(*arguments, cwd=tmp_path), timeout_s=60)
    assert code == EXIT_USAGE, output
    assert output.startswith("error: ")
    for word in words:
        assert word in " ".join(output.split())


def test_no_engine_is_one_sentence(tmp_path: Path) -> None:
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    command = [sys.executable, "-m", "harness.cli.app", "run", *SMALL_ARGS]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 255
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_an_image_that_does_not_exist_is_named(tmp_path: Path) -> None:
    code, output = finish(shatter("run", *SMALL_ARGS, "--kafka-image", "nobody/nothing:9", cwd=tmp_path))
    assert code == 255
    assert "nobody/nothing:9" in output
