"""The TOML file of mirror `external`: what is refused, and with which message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.core.errors import MirrorError, RequestRefusedError, UsageError
from harness.core.testspec import parse_spec
from harness.run.plan import RunPlan, make_plan
from harness.topology.mirror import Capability
from mirrors import MirrorContext, MirrorSettings
from mirrors.external.config import filled, read_config
from mirrors.external.driver import ExternalMirror

pytestmark = pytest.mark.unit
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "external-mm2.toml"
GOOD = 'contract = "mm2-at-least-once"\nstart = ["copier", "${source_bootstrap}"]\n'


def written(folder: Path, text: str) -> dict[str, str]:
    path = folder / "mirror.toml"
    path.write_text(text)
    return {"config": str(path)}


def test_the_example_is_right_and_gives_the_contract() -> None:
    config = read_config({"config": str(EXAMPLE)})
    assert config.container is not None
    assert config.capabilities == {Capability.FAILOVER: True}
    plan = make_plan(parse_spec({"mirror": "external", "mirror-options": {"config": str(EXAMPLE)}}, where="test"))
    assert plan.contract == "mm2-at-least-once"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("contract = ", "not valid TOML"),
        (GOOD + 'stopp = ["x"]\n', "'stopp'"),
        ('contract = "mm2-at-least-once"\n', "either a [container] or a `start`"),
        (GOOD + '[container]\nimage = "kafka"\n', "either a [container] or a `start`"),
        (GOOD.replace("mm2-at-least-once", "mm2-atleast-once"), "mm2-at-least-once"),
        (GOOD.replace("${source_bootstrap}", "${bootstrap}"), "${source_bootstrap}"),
        (GOOD + "[capabilities]\nfly = true\n", "capabilities.fly"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_config(written(tmp_path, text))
    assert words in str(caught.value)
    assert "mirror.toml" in str(caught.value) or "contract" in str(caught.value)


def test_no_file_and_no_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs --mirror-option config=FILE"):
        read_config({})
    with pytest.raises(UsageError, match="cannot be read"):
        read_config({"config": str(tmp_path / "none.toml")})


def test_placeholders() -> None:
    assert filled("${source}->${destination} costs $$5", {"source": "A", "destination": "B"}) == "A->B costs $5"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('fails-back = "yes"\n', "'fails-back'"),
        ('links = ["sources"]\n', "'links.0'"),
        ("links = []\n", "'links'"),
        ("nodes = 2\n", "'nodes' counts containers"),
        ('nodes = 0\n[container]\nimage = "kafka"\n', "'nodes'"),
    ],
)
def test_traits_are_checked(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_config(written(tmp_path, GOOD + text))
    assert words in str(caught.value)


def planned(folder: Path, text: str, **keys: object) -> RunPlan:
    return make_plan(parse_spec({"mirror": "external", "mirror-options": written(folder, text), **keys}, where="test"))


def test_traits_decide_about_failbacks_links_and_faults(tmp_path: Path) -> None:
    able = GOOD + 'fails-back = true\nlinks = ["source"]\n'
    plan = planned(tmp_path, able, scenario="failback", nemesis=["link-partition"], **{"time-limit": 60})
    assert plan.scenario.later == (("B", "A"),)
    assert {fault.params["link"] for fault in plan.schedule} == {"A"}
    (back,) = planned(tmp_path, able, scenario="failback", nemesis=["link-partition@truncation"]).schedule
    assert back.params["link"] in ("A", "B")  # the mirror back reads from B
    with pytest.raises(UsageError, match="mirror-kill cannot act on this run"):
        planned(tmp_path, GOOD, nemesis=["mirror-kill"])
    assert planned(tmp_path, GOOD, scenario="disaster").scenario.later == ()
    several = 'contract = "mm2-at-least-once"\nfails-back = true\nnodes = 3\n[container]\nimage = "kafka"\n'
    plan = planned(tmp_path, several, scenario="disaster", nemesis=["mirror-kill"], **{"time-limit": 60})
    assert [plan.first_process(route) for route in (("A", "B"), ("B", "A"))] == [1, 4]


@dataclass(frozen=True)
class Place:
    """A cluster that nothing asks: the file describes the mirror."""

    name: str
    bootstrap: str = "127.0.0.1:1"
    link_bootstrap: str = "127.0.0.1:1"


class Site:
    """Addresses alone: commands run on this machine."""

    def address(self, number: int) -> str:
        return f"127.0.0.{number}"


ROW = '{{"topic": "t", "partition": 0, "state": "{}", "source_offset": {}, "destination_offset": {}}}'


def described_mirror(folder: Path, *, stop: str) -> ExternalMirror:
    """A mirror of commands, which describes what is in a file; stop: what its `stop` runs."""
    state = folder / "state.json"
    state.write_text("[" + ROW.format("MIRRORING", 7, 7) + "]")
    (folder / "stopped.json").write_text("[" + ROW.format("STOPPED", 9, 9) + "]")
    text = 'contract = "mm2-at-least-once"\nstart = ["sleep", "60"]\n'
    text += f"describe = ['cat', '{state}']\nstop = {json.dumps(['sh', '-c', f'cd {folder}; {stop}'])}\n"
    settings = MirrorSettings(contract="mm2-at-least-once", options=written(folder, text))
    context = MirrorContext(source=Place("A"), destination=Place("B"), site=Site(), settings=settings)  # type: ignore[arg-type]
    made = ExternalMirror(context)
    made.start(["t"])
    return made


def test_the_cut_is_what_is_described_after_the_stop(tmp_path: Path) -> None:
    mirror = described_mirror(tmp_path, stop="(sleep 1; cp stopped.json state.json) > out 2>&1 &")
    assert dict(mirror.stop(["t"]).offsets) == {("t", 0): (9, 9)}
    assert "command has ended" in mirror._explain()


def test_a_stop_command_that_fails_is_a_refusal_with_its_text(tmp_path: Path) -> None:
    mirror = described_mirror(tmp_path, stop="echo error 145: states do not allow it; exit 3")
    try:
        with pytest.raises(RequestRefusedError, match="ended with 3: error 145: states do not allow it"):
            mirror.stop(["t"])
        assert mirror._explain() == "described: t-0 MIRRORING; command runs"
    finally:
        mirror.close()


def test_a_stop_that_is_accepted_and_does_nothing_is_no_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrors.external.driver._STOP_S", 0.2)
    mirror = described_mirror(tmp_path, stop="true")
    try:
        with pytest.raises(MirrorError, match=r"`stop` was accepted, and 0\.2 s later t-0 is MIRRORING"):
            mirror.stop(["t"])
    finally:
        mirror.close()


def test_scenarios_that_mirror_back_are_refused() -> None:
    keys = {"mirror": "external", "scenario": "failback", "mirror-options": {"config": str(EXAMPLE)}}
    with pytest.raises(UsageError, match="mirrors back, which mirror external cannot"):
        make_plan(parse_spec(keys, where="test"))
