"""A test is rerun on real clusters from its run.json alone: elsewhere, without the file of its mirror."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from harness.cli.one_run import replayed
from harness.clusters.docker.images import ImageSet
from harness.core.progress import RichDisplay
from harness.core.signals import Interrupts
from harness.core.testspec import parse_spec
from harness.history.runfile import RunFile, read_meta
from harness.run.plan import make_plan
from harness.run.run_folder import first_meta
from harness.run.runner import run_test

EXAMPLE = Path(__file__).parents[2] / "examples" / "external-mm2.toml"
SMALL = {"brokers": 1, "topics": 1, "partitions": 1, "rate": 100, "time-limit": 5, "seed": 3}


def test_a_run_is_replayed_from_elsewhere(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "out [1]: x*"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    Path("mirror.toml").write_text(EXAMPLE.read_text())
    keys = {**SMALL, "mirror": "external", "mirror-options": {"config": "mirror.toml"}}
    plan = make_plan(parse_spec(keys, where="test"))
    RunFile.create(here / "run", first_meta(plan, "first", faults_to_bite=0))
    Path("mirror.toml").unlink()
    monkeypatch.chdir(there)

    result = run_test(
        replayed(here / "run"), images=images, out=there, display=RichDisplay(Console()), interrupts=Interrupts()
    )
    assert result.error is None, result.why
    meta = read_meta(result.folder)
    assert meta.status == "finished"
    assert meta.test.files == {"mirror.toml": EXAMPLE.read_text()}
    assert (meta.test.seed, meta.test.contract) == (3, "mm2-at-least-once")
    assert meta.versions["kafka"] == images.kafka_version
    assert {"shatter", "python", "spark", "mirror", "docker"} <= set(meta.versions)
    assert images.kafka in meta.images
    assert all(digest.startswith("sha256:") for digest in meta.images.values())
