"""Requests to a mirror that fail: the run goes on, with what the judge needs in its tables. Plain mirrors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from rich.console import Console

from harness.clusters.docker.images import ImageSet
from harness.core.errors import MirrorError, RequestRefusedError
from harness.core.progress import RichDisplay
from harness.core.signals import Interrupts
from harness.core.testspec import parse_spec
from harness.history.recorder import RunRecorder
from harness.history.runmeta import RunMeta
from harness.run import scenario_steps
from harness.run.plan import make_plan
from harness.run.scenario_steps import RunSteps
from harness.run.scenarios import Route
from harness.run.state import Stage
from harness.topology.mirror import Cut, PartitionState, PartitionStatus

pytestmark = pytest.mark.unit

IMAGES = ImageSet(
    kafka="image:1",
    mirror="image:1",
    toxiproxy="image:1",
    reference="image:1",
    tools="image:1",
    kafka_version="4.3.1",
    own_kafka=True,
)
Answer = Callable[[], Cut]


class PlainMirror:
    """Answers stops with what it was given, one after the other; the last answer stays."""

    name = "plain"
    source, destination = "A", "B"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def topic_on_destination(self, topic: str) -> str:
        return topic

    def stop(self, _topics: Sequence[str]) -> Cut:
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])()

    def describe(self) -> Sequence[PartitionStatus]:
        return [PartitionStatus(topic="append-0", partition=0, state=PartitionState.FAILED, error="no source")]

    def record_changes(self, _recorder: object) -> None:
        """Nothing."""


def fails(error: Exception) -> Answer:
    def answer() -> Cut:
        raise error

    return answer


def stopped(folder: Path, *answers: Answer) -> tuple[Cut, list[Route], list[str], dict[str, list[dict[str, Any]]]]:
    """Stop such a mirror, then start the opposite one: the cut, what runs then, the run's notes, and its tables."""
    plan = make_plan(parse_spec({"mirror": "reference", "scenario": "failback", "settle-limit": 0.3}, where="test"))
    with RunRecorder(folder, meta=RunMeta(run_id="r")) as recorder:
        display = RichDisplay(Console(quiet=True))
        stage = Stage(
            plan=plan, images=IMAGES, folder=folder, recorder=recorder, display=display, interrupts=Interrupts()
        )
        stage.mirrors[("A", "B")] = PlainMirror(*answers)  # type: ignore[assignment]
        stage.running_routes.append(("A", "B"))
        steps = RunSteps(stage, fails(AssertionError("no other mirror may be made")))  # type: ignore[arg-type]
        cut = steps.stop_mirror("A", "B")
        if stage.running_routes:
            steps.start_mirror("B", "A")
        notes = list(recorder.run_file.meta.notes)
    tables = {
        table: ds.dataset(folder / table, format="parquet").to_table().to_pylist()
        for table in ("ops", "mirror_states")
        if (folder / table).exists()
    }
    return cut, stage.running_routes, notes, tables


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_steps, "ASK_AGAIN_S", 0.05)


def test_a_stop_that_is_refused_to_the_end_is_recorded_with_reason_and_states(tmp_path: Path) -> None:
    refusal = RequestRefusedError("error 145: states do not allow it")
    cut, running, notes, tables = stopped(tmp_path / "run", fails(refusal))
    assert (cut.offsets, running) == ({}, [("A", "B")])
    invoke, answer = tables["ops"]
    assert (invoke["f"], answer["type"], answer["error"]) == ("mirror_stop", "fail", "refused")
    assert answer["error_text"].startswith("refused ")
    assert answer["error_text"].endswith(" times in 0 s: error 145: states do not allow it")
    (state,) = tables["mirror_states"]
    assert (state["state"], state["error"]) == ("FAILED", "no source")
    assert invoke["time_ns"] < state["time_ns"] < answer["time_ns"]
    first, last, not_started = notes
    assert first == "the stop of mirror A→B was refused: error 145: states do not allow it"
    assert last.startswith("the stop of mirror A→B was refused: refused ")
    assert not_started == "the mirror B→A was not started: A→B was not stopped before"


def test_a_stop_that_does_not_end_is_unknown_not_refused(tmp_path: Path) -> None:
    late = MirrorError("did not stop within 90 s: append-0-0 is STOPPING")
    _, running, notes, tables = stopped(tmp_path / "run", fails(late))
    assert running == [("A", "B")]
    assert [(row["type"], row["error"]) for row in tables["ops"]] == [("invoke", None), ("info", "timeout")]
    assert notes[0] == "the stop of mirror A→B did not end: did not stop within 90 s: append-0-0 is STOPPING"


def test_a_stop_that_is_granted_at_last_is_a_stop(tmp_path: Path) -> None:
    refusal = RequestRefusedError("not yet")
    cut, running, notes, tables = stopped(tmp_path / "run", fails(refusal), lambda: Cut({("append-0", 0): (7, 7)}))
    assert dict(cut.offsets) == {("append-0", 0): (7, 7)}
    assert running == []
    assert notes == ["the stop of mirror A→B was refused: not yet"]
    assert [row["type"] for row in tables["ops"]] == ["invoke", "ok"]
    assert [(row["state"], row["source_offset"]) for row in tables["mirror_states"]] == [("STOPPED", 7)]


def test_what_is_wrong_with_the_program_still_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        stopped(tmp_path / "run", fails(ZeroDivisionError()))
