"""One sentence about a container that has ended."""

from __future__ import annotations

import pytest

from harness.clusters.docker.obituary import obituary

pytestmark = pytest.mark.unit


def test_errors_come_before_other_lines_and_stack_traces_are_left_out() -> None:
    log = (
        "[12:00] INFO starting (kafka.Kafka)\n"
        "[12:01] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$)\n"
        "org.apache.kafka.common.config.ConfigException: Invalid value 0 for num.network.threads\n"
        "\tat org.apache.kafka.Config.parse(Config.java:1)\n"
        "\t... 12 more\n"
        "[12:01] INFO App info unregistered\n"
    )
    assert obituary("A-broker-1", 1, log) == (
        "A-broker-1 ended by itself with exit code 1; its log says: "
        "[12:01] ERROR Exiting Kafka due to fatal exception (kafka.Kafka$) / "
        "org.apache.kafka.common.config.ConfigException: Invalid value 0 for num.network.threads"
    )


def test_without_errors_the_last_line_is_shown_and_never_a_page() -> None:
    told = obituary("A-broker-1", 137, "INFO one\n" + "x" * 4000 + "\n\n")
    assert told.startswith("A-broker-1 was ended by SIGKILL (exit code 137)")
    assert "INFO one" not in told
    assert len(told) < 500
    assert "\n" not in told


@pytest.mark.parametrize(
    ("code", "no_memory", "said"),
    [
        (137, True, "no memory left"),
        (143, False, "SIGTERM"),
        (255, False, "ended by itself with exit code 255"),
        (None, False, "has ended"),
    ],
)
def test_how_it_ended(code: int | None, no_memory: bool, said: str) -> None:
    told = obituary("toxiproxy", code, "\x1b[31m\n", no_memory=no_memory)
    assert said in told
    assert "\x1b" not in told


def test_an_empty_log() -> None:
    assert obituary("toxiproxy", 2, "") == "toxiproxy ended by itself with exit code 2; its log is empty"
