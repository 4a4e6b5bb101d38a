"""run.json keeps everything that a replay needs: a test is replayed elsewhere, without its original files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import __version__
from harness.cli.one_run import replayed
from harness.core.testspec import parse_spec
from harness.history.runfile import RunFile, read_meta
from harness.report.html import write_report
from harness.run.campaign import load_campaign
from harness.run.plan import make_plan
from harness.run.run_folder import first_meta
from mirrors.external.config import read_config

pytestmark = pytest.mark.unit
MIRROR = 'contract = "mm2-at-least-once"\ntopic-prefix = "copy-"\nstart = ["copier", "${source_bootstrap}"]\n'
CAMPAIGN = """
name = "mine"
[[test]]
mirror = "external"
nemesis = ["link-partition"]
seed = 5
time-limit = 40
[test.mirror-options]
config = "mirror.toml"
"""


def test_a_test_is_rebuilt_from_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    Path("mirror.toml").write_text(MIRROR)
    Path("mine.toml").write_text(CAMPAIGN)
    campaign = load_campaign("mine.toml")
    plan = make_plan(campaign.tests[0], given={campaign.where: campaign.text})
    run = tmp_path / "run"
    RunFile.create(run, first_meta(plan, "r", faults_to_bite=1))
    Path("mirror.toml").write_text("another")
    Path("mine.toml").unlink()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")

    meta = read_meta(run)
    assert meta.test.files == {"mirror.toml": MIRROR, "mine.toml": CAMPAIGN}
    assert meta.versions["shatter"] == __version__
    assert {"python", "spark"} <= set(meta.versions)
    again = replayed(run)
    assert again.contract == plan.contract == "mm2-at-least-once"
    assert again.schedule == plan.schedule
    assert again.given == plan.given
    config = read_config(again.settings.options, again.settings.texts)
    assert (config.topic_prefix, config.start[0]) == ("copy-", "copier")

    (run / "results.json").write_text(json.dumps({"valid": True, "why": "", "anomalies": {}}))
    page = write_report(run).read_text()
    assert "copy-" in page
    assert "link-partition" in page
    assert "config: mirror.toml" in page
    assert "never injected" in page


def test_a_spec_without_files_is_rebuilt_too() -> None:
    plan = make_plan(parse_spec({"nemesis": "broker-kill"}, where="t"))
    assert plan.given == {}
    assert first_meta(plan, "r", faults_to_bite=1).test.files == {}
