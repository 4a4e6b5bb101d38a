"""The TOML file of mirror `external`: what is refused, and with which message."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from harness.core.testspec import parse_spec
from harness.run.plan import make_plan
from harness.topology.mirror import Capability
from mirrors.external.config import filled, read_config

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


def test_scenarios_that_mirror_back_are_refused() -> None:
    keys = {"mirror": "external", "scenario": "failback", "mirror-options": {"config": str(EXAMPLE)}}
    with pytest.raises(UsageError, match="mirrors back, which mirror external cannot"):
        make_plan(parse_spec(keys, where="test"))
