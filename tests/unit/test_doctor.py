"""What the doctor reports for given facts, and for an engine that does not answer. No engine."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from rich.console import Console

from harness.cli import doctor
from harness.cli.doctor import GIB, Check
from harness.clusters.docker import dockerd, engine
from harness.core import system
from harness.core.errors import EXIT_FAILED, EngineError, WaitTimeoutError
from harness.core.locks import file_lock


class TestChecks:
    def test_an_old_engine_is_named_with_what_is_needed(self) -> None:
        old = doctor.check_engine({"Version": "17.03.0", "ApiVersion": "1.27"})
        assert (old.ok, old.blocks) == (False, True)
        assert "17.03.0, API 1.27" in old.found
        assert "1.40" in old.need
        assert doctor.check_engine({"Version": "28.0.0", "ApiVersion": "1.48"}).ok

    @pytest.mark.parametrize(
        ("here", "engine_total", "ok"),
        [(8 * GIB, 16 * GIB, True), (8 * GIB, 2 * GIB, False), (1 * GIB, 16 * GIB, False), (None, None, True)],
    )
    def test_the_smaller_memory_counts(self, here: int | None, engine_total: int | None, ok: bool) -> None:
        assert doctor.check_memory(here, engine_total).ok is ok

    def test_available_memory_is_read_in_bytes(self) -> None:
        assert doctor.available_memory("MemTotal: 24 kB\nMemAvailable:    2048 kB\n") == 2048 * 1024
        assert doctor.available_memory("MemTotal: 24 kB\n") is None

    def test_disk(self, tmp_path: Path) -> None:
        assert doctor.check_disk("disk", tmp_path, 1).ok
        full = doctor.check_disk("disk", tmp_path, 1 << 60)
        assert not full.ok
        assert str(tmp_path) in full.found
        assert not doctor.check_disk("disk", tmp_path / "absent", 1).ok

    def test_packages(self) -> None:
        (fine,) = doctor.check_packages(["docker>=7", "nothing-such; python_version < '3'"])
        assert (fine.ok, fine.found) == (True, "1 as required")
        (bad,) = doctor.check_packages(["docker>=900", "nothing-such>=1"])
        assert not bad.ok
        assert "docker 7" in bad.found
        assert "nothing-such is missing (needs >=1)" in bad.found

    def test_the_installed_distribution_has_what_it_asks_for(self) -> None:
        (check,) = doctor.check_packages()
        assert check.ok, check.found

    def test_slow_storage_and_few_processors_warn_but_do_not_block(self) -> None:
        for check in (doctor.check_driver("vfs"), doctor.check_cpus(1)):
            assert (check.ok, check.blocks) == (False, False)
        assert doctor.check_driver("overlay2").ok
        assert doctor.check_cpus(2).ok


class TestDiagnosis:
    @pytest.fixture(autouse=True)
    def no_engine(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
        address = f"unix://{tmp_path}/docker.sock"
        monkeypatch.setenv("DOCKER_HOST", address)
        return address

    def test_without_an_engine_the_rest_is_still_checked(self, no_engine: str) -> None:
        checks = {check.name: check for check in doctor.diagnose()}
        assert no_engine in checks["engine"].found
        assert not checks["engine"].ok
        assert checks["Python"].ok
        assert {"packages", "Java", "processors", "memory", "disk here"} <= set(checks)

    def test_json_and_exit_code(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert doctor.main_diagnose(json=True) == EXIT_FAILED
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] is False
        assert {"name", "ok", "found", "need", "mend", "blocks"} == set(document["checks"][0])

    def test_text_has_fixes_of_failed_checks_only(self) -> None:
        console = Console(width=200, record=True, file=sys.stderr)
        good = Check("Python", True, "3.12.1", "3.11 or newer", "install a newer Python")
        bad = Check("engine", False, "nothing listens [at] x", "an engine", "start it [now]")
        doctor.render([good, bad], console)
        text = console.export_text()
        assert "start it [now]" in text
        assert "nothing listens [at] x" in text
        assert "install a newer Python" not in text

    def test_an_engine_elsewhere_is_not_replaced_by_one_here(self, no_engine: str) -> None:
        said: list[str] = []
        with pytest.raises(EngineError) as caught:
            engine.install_and_start(say=said.append)
        assert f"DOCKER_HOST names {no_engine}" in str(caught.value)
        assert said == []


class TestUnreachable:
    """Real sockets that behave badly."""

    @pytest.fixture
    def listener(self, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
        path = str(tmp_path / "hung.sock")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen(8)
            yield server, f"unix://{path}"

    def sentence(self, monkeypatch: pytest.MonkeyPatch, address: str) -> str:
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(EngineError) as caught:
            engine.connect(timeout_s=1)
        text = str(caught.value)
        assert address in text
        assert "\n" not in text
        return text

    def test_no_socket(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert "no Docker engine is running" in self.sentence(monkeypatch, f"unix://{tmp_path}/none.sock")

    def test_nothing_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
            port = free.getsockname()[1]
            assert "nothing listens" in self.sentence(monkeypatch, f"tcp://127.0.0.1:{port}")

    def test_no_answer(self, monkeypatch: pytest.MonkeyPatch, listener: tuple[socket.socket, str]) -> None:
        assert "did not answer within 1 s" in self.sentence(monkeypatch, listener[1])

    def test_no_such_protocol(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "cannot be reached" in self.sentence(monkeypatch, "smoke://signals")


class TestDaemon:
    def test_a_pool_that_overlaps_a_route_is_not_taken(self) -> None:
        first, second, *_ = dockerd.POOLS
        assert dockerd.choose_pool([]) == first
        assert dockerd.choose_pool([IPv4Network("172.30.4.0/24")]) == second
        assert dockerd.choose_pool([IPv4Network("172.16.0.0/12")]) == IPv4Network("10.213.0.0/16")
        with pytest.raises(EngineError, match="overlaps a route"):
            dockerd.choose_pool([IPv4Network("172.16.0.0/12"), IPv4Network("10.0.0.0/8")])

    def test_the_bridge_takes_the_end_of_the_pool(self) -> None:
        assert dockerd.bridge_address(IPv4Network("172.30.0.0/16")) == "172.30.255.1/24"

    def test_command(self, tmp_path: Path) -> None:
        daemon = dockerd.Daemon(log=tmp_path / "log")
        assert daemon.command(IPv4Network("172.30.0.0/16"))[1:] == [
            "--bip=172.30.255.1/24",
            "--default-address-pool=base=172.30.0.0/16,size=24",
        ]
        assert daemon.command(None)[1:] == []

    def test_keys_of_the_configuration_file(self, tmp_path: Path) -> None:
        path = tmp_path / "daemon.json"
        assert dockerd.configured_keys(str(path)) == frozenset()
        path.write_text('{"bip": "10.0.0.1/24"}')
        assert dockerd.configured_keys(str(path)) == {"bip"}
        path.write_text("{")
        with pytest.raises(EngineError, match=str(path)):
            dockerd.configured_keys(str(path))


class TestSystem:
    def test_os_release(self) -> None:
        text = '# comment\nID=ubuntu\nID_LIKE="debian"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
        release = system.os_release(text)
        assert release == {"ID": "ubuntu", "ID_LIKE": "debian", "PRETTY_NAME": "Ubuntu 24.04 LTS"}
        assert system.system_name(release) == "Ubuntu 24.04 LTS"
        assert not system.is_debian_like({"ID": "fedora"})
        assert not system.is_debian_like({})

    def test_what_to_do_by_hand_names_the_system(self) -> None:
        assert system.system_name() in engine.by_hand("no engine") or "systemctl" in engine.by_hand("no engine")

    def test_commands_are_found_outside_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        assert system.find_command("nologin") == "/usr/sbin/nologin"
        assert system.find_command("surely-no-such-command") is None

    def test_a_lock_is_exclusive_and_freed(self, tmp_path: Path) -> None:
        waited: list[str] = []
        with file_lock(tmp_path / "lock", what="nobody", timeout_s=1):
            with (
                pytest.raises(WaitTimeoutError, match="for the other to finish"),
                file_lock(tmp_path / "lock", what="the other", timeout_s=0.2, waiting=lambda: waited.append("yes")),
            ):
                pytest.fail("both hold the lock")
            assert waited == ["yes"]
        with file_lock(tmp_path / "lock", what="nobody", timeout_s=0.2):
            pass
