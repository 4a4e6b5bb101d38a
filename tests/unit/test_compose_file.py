"""compose/compose.yaml is what `shatter up` starts. No engine."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import app as cli
from harness.cli import compose_file
from harness.clusters.docker.image_files import compose_dir
from harness.clusters.plan.topology import ClusterSpec, NodePlan

MEND = "write it again: python -m harness.cli.compose_file"


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load((compose_dir() / "compose.yaml").read_text())


def test_the_files_are_up_to_date() -> None:
    made = compose_file.files()
    for name, text in made.items():
        assert (compose_dir() / name).read_text() == text, f"compose/{name} differs from the plan; {MEND}"
    assert {f"pair/{path.name}" for path in (compose_dir() / "pair").iterdir()} == {n for n in made if "/" in n}


def test_it_is_the_pair_that_shatter_up_starts_by_default() -> None:
    defaults = {name: p.default for name, p in inspect.signature(cli.up).parameters.items()}
    wanted = tuple(
        ClusterSpec(name=name, brokers=defaults["brokers"], separate_controllers=defaults["controllers"])
        for name in ("A", "B")
    )
    assert tuple(compose_file.spec().clusters) == wanted


def test_every_node_of_the_plan_is_a_service(document: Any) -> None:
    pair = compose_file.pair_plan()
    mirror = compose_file.mirror_plan(pair)
    assert set(document["services"]) == {node.name for node in (*pair.nodes, mirror)}
    for node in pair.nodes:
        service = document["services"][node.name]
        assert service["image"] == node.image
        assert tuple(service.get("entrypoint", ())) == node.entrypoint
        assert service["networks"]["run"]["ipv4_address"] == node.address
        assert service.get("user") == node.user
        assert service.get("environment", {}) == dict(node.environment)
        assert tuple(service["command"][: len(node.command)]) == node.command
        assert service["labels"]["shatterproof"] == compose_file.RUN_ID
        check_mounts(service, node)
    assert document["services"]["mirror-1"]["profiles"] == ["mirror"]
    assert document["networks"]["run"]["ipam"]["config"][0]["subnet"] == str(pair.subnet)


def check_mounts(service: Any, node: NodePlan) -> None:
    mounts = dict(reversed(mount.removesuffix(":ro").split(":")) for mount in service.get("volumes", []))
    for path, text in node.files.items():
        assert (compose_dir() / Path(mounts[path])).read_text() == text
    for volume, path in node.volumes.items():
        assert mounts[path] == volume


def test_toxiproxy_leads_to_every_broker(document: Any) -> None:
    pair = compose_file.pair_plan()
    assert f"-config={compose_file.PROXIES_PATH}" in document["services"]["toxiproxy"]["command"]
    found = json.loads((compose_dir() / "pair" / "proxies.json").read_text())
    wanted = {(p.name, p.listen_port, p.upstream) for c in pair.clusters.values() for p in c.proxies}
    assert {(p["name"], int(p["listen"].rpartition(":")[2]), p["upstream"]) for p in found} == wanted
    assert all(proxy["enabled"] for proxy in found)


def test_the_mirror_reaches_the_clusters_by_the_links_only() -> None:
    pair = compose_file.pair_plan()
    (text,) = compose_file.mirror_plan(pair).files.values()
    lines = dict(line.split("=", 1) for line in text.splitlines())
    for cluster in pair.clusters.values():
        assert lines[f"{cluster.name}.bootstrap.servers"] == cluster.link_bootstrap
    assert lines["A->B.topics"] == ".*"


def test_writing_again_changes_nothing_and_stale_files_go(tmp_path: Path) -> None:
    assert len(compose_file.write(tmp_path)) == len(compose_file.files())
    stale = tmp_path / "pair" / "C-broker-1.properties"
    stale.write_text("")
    assert compose_file.write(tmp_path) == [stale]
    assert compose_file.write(tmp_path) == []
