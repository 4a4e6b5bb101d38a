"""Parameters of a test: bad values and files that were once taken for the default, ignored, or never reported."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UsageError
from harness.core.given import MOST_BYTES, parse_toml, read_given
from harness.core.testspec import parse_spec
from harness.run.campaign import MOST_TESTS, parse_campaign
from harness.run.plan import make_plan
from mirrors.external.config import read_config

pytestmark = pytest.mark.unit


def refused(values: dict[str, Any]) -> str:
    """The error message for a test with these keys."""
    with pytest.raises(UsageError) as caught:
        make_plan(parse_spec(values, where="t.toml"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"contract": ""}, ["'contract'", "empty"]),
        ({"contract": " "}, ["'contract'", "empty"]),
        ({"kafka-image": ""}, ["'kafka-image'", "empty"]),
        ({"rate": float("inf")}, ["'rate'", "finite"]),
        ({"rate": float("nan")}, ["'rate'", "finite"]),
        ({"rate": 1e308}, ["'rate'", "1000000"]),
        ({"time-limit": float("nan")}, ["'time-limit'"]),
        ({"txn-hold": float("nan")}, ["'txn-hold'"]),
        ({"seed": int("9" * 44)}, ["'seed'", "9223372036854775807"]),
        ({"seed": True}, ["'seed'", "integer"]),
        ({"seed": "5"}, ["'seed'", "integer"]),
        ({"authorizer": "yes"}, ["'authorizer'", "boolean"]),
        ({"time-limit": 5, "time_limit": 6}, ["'time_limit'", "twice"]),
        ({"mirror-options": {"primary.consumer.fetch.max.bytes": "1"}}, ["'primary'", "A., B., A->B."]),
        ({"mirror-options": {"C.consumer.fetch.max.bytes": "1"}}, ["'C'", "A., B., A->B."]),
        ({"mirror-options": {"B->A.tasks.max": "1"}}, ["'B->A'", "A->B."]),
        ({"mirror-options": {"tasks.max": "1"}}, ["'tasks'", "A->B."]),
        ({"mirror-options": {"A.": "1"}}, ["'A.'"]),
    ],
)
def test_an_impossible_value_is_refused_with_its_key(values: dict[str, Any], words: list[str]) -> None:
    said = refused(values)
    for word in words:
        assert word in said


def test_aliases_of_the_test_are_taken() -> None:
    options = {"A.consumer.fetch.max.bytes": "9", "B.producer.linger.ms": "5", "A->B.tasks.max": "3"}
    make_plan(parse_spec({"mirror-options": options}, where="t.toml"))
    chain = {"scenario": "chain", "mirror-options": {"C.producer.linger.ms": "5", "B->C.tasks.max": "3"}}
    make_plan(parse_spec(chain, where="t.toml"))


def test_the_command_line_refuses_the_same() -> None:
    for more, word in (
        (["--contract", ""], "'contract'"),
        (["--rate", "inf"], "'rate'"),
        (["--seed", "9" * 44], "seed"),
    ):
        command = [sys.executable, "-m", "harness.cli.app", "run", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 254, done.stderr
        assert word in done.stderr
        assert "Traceback" not in done.stderr


def matrix(values: int, keys: tuple[str, ...]) -> str:
    lists = "".join(f"{key} = {list(range(1, values + 1))}\n" for key in keys)
    return f"[[test]]\n[test.matrix]\n{lists}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[test]]\n[test.matrix]\nname = ['a', 'b']\n", ["'name'", "[test.matrix]"]),
        (matrix(60, ("seed", "topics", "producers", "consumers")), ["12,960,000 tests", f"{MOST_TESTS:,}"]),
        (matrix(90, ("seed", "topics")) + matrix(50, ("seed", "topics")), ["number 2", "2,500 tests"]),
        ("a = " + "[" * 5000 + "]" * 5000, ["t.toml", "deep"]),
        ("a = " + "{a=" * 5000 + "1" + "}" * 5000, ["t.toml", "deep"]),
        (".".join("a" * 5000) + " = 1\n", ["t.toml", "deep"]),
        ("[defaults]\n" + ".".join("a" * 5000) + " = 1\n", ["t.toml", "deep"]),
        ("[[test]]\nseed = " + "9" * 5000, ["t.toml"]),
        ("[[test]]\ntime-limit = 3\ntime_limit = 4\n", ["'time_limit'", "twice"]),
        ("defaults = '" + "x" * 100_000 + "'\n[[test]]\n", ["[defaults]", "table"]),
    ],
)
def test_an_impossible_campaign_is_refused_at_once(text: str, words: list[str]) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        parse_campaign(text, where="t.toml")
    assert time.monotonic() - began < 5
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 500
    for word in words:
        assert word in said


def test_a_key_of_defaults_and_of_a_test_is_one_with_dashes_or_underscores() -> None:
    text = "[defaults]\ntime_limit = 7\n[[test]]\ntime-limit = 9\n[[test]]\nname = 'x'\n"
    assert [spec.time_limit for spec in parse_campaign(text, where="t.toml").tests] == [9, 7]


EXTERNAL = 'contract = "mm2-at-least-once"\n[container]\nimage = "kafka"\n'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (EXTERNAL + 'entry-point = ["sh"]\n', "'container.entry-point'"),
        (EXTERNAL.replace('"kafka"', '""'), "container.image"),
        ('path = "elsewhere"\n' + EXTERNAL, "'path'"),
        (EXTERNAL.replace('"mm2-at-least-once"', '""'), "contract"),
        (EXTERNAL + "[capabilities]\nfailover = 'yes'\n", "capabilities.failover"),
        ('contract = "mm2-at-least-once"\nstart = [""]\n', "'start'"),
        ("a = " + "[" * 5000 + "]" * 5000, "deep"),
    ],
)
def test_an_impossible_file_of_an_external_mirror_is_refused(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_config({"config": str(file)})
    assert "mirror.toml" in str(caught.value)
    assert word in str(caught.value)


def test_a_given_file_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "large.toml").write_bytes(b"#" * (MOST_BYTES + 1))
    (tmp_path / "latin.toml").write_bytes(b"name = '\xfc'")
    for name, word in (
        ("large.toml", "4,194,304"),
        ("latin.toml", "UTF-8"),
        ("none", "No such file"),
        ("", "directory"),
    ):
        with pytest.raises(UsageError, match=word):
            read_given(str(tmp_path / name), what="campaign file")
    with pytest.raises(UsageError, match=r"NUL|null"):
        read_given("a\0b", what="campaign file")
    assert parse_toml("a = 1", where="x") == {"a": 1}
