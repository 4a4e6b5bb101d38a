"""Removal of what runs left behind: containers, networks and volumes with our label.

An object is stray when the process that created it is gone (labels.py). `force` also removes those of living processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import docker.errors
import requests

from harness.clusters.docker import labels as label
from harness.clusters.docker.clients import DockerClients, explain
from harness.core.errors import EngineError
from harness.core.wait import wait_until

Kind = Literal["container", "network", "volume"]
REMOVE_S = 60.0


@dataclass(frozen=True)
class LabelledObject:
    """One Docker object of ours. key: the name or id by which the engine removes it. stray: its owner is gone."""

    kind: Kind
    name: str
    key: str
    run_id: str
    stray: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def labelled_objects(clients: DockerClients, *, run: str | None = None) -> list[LabelledObject]:
    """Every object with our label, or those of one run: containers first, as they must go first."""
    wanted = {"label": [label.RUN if run is None else f"{label.RUN}={run}"]}
    me = label.this_process()

    def entry(kind: Kind, name: str, key: str, labels: Mapping[str, str] | None) -> LabelledObject:
        found = labels or {}
        return LabelledObject(kind, name, key, found.get(label.RUN, ""), not label.owner_lives(found, me=me))

    try:
        api = clients.api
        containers = [
            entry("container", (c["Names"] or [c["Id"]])[0].lstrip("/"), c["Id"], c["Labels"])
            for c in api.containers(all=True, filters=wanted)
        ]
        networks = [entry("network", n["Name"], n["Id"], n["Labels"]) for n in api.networks(filters=wanted)]
        volumes = [
            entry("volume", v["Name"], v["Name"], v["Labels"]) for v in api.volumes(filters=wanted)["Volumes"] or []
        ]
    except (docker.errors.APIError, requests.RequestException) as error:
        raise EngineError(f"the engine does not list what is labelled {label.RUN}: {explain(error)}") from error
    return [*containers, *networks, *volumes]


def stray_objects(clients: DockerClients) -> list[LabelledObject]:
    """Every object whose owner is gone."""
    return [found for found in labelled_objects(clients) if found.stray]


def clean(clients: DockerClients, *, run: str | None = None, force: bool = False) -> list[LabelledObject]:
    """Remove stray objects, of one run or of all; with `force` also those whose owner lives. Returns the removed ones.

    Raises EngineError, naming what could not be removed.
    """
    chosen = [found for found in labelled_objects(clients, run=run) if force or found.stray]
    errors: list[str] = []
    for kind in ("container", "network", "volume"):
        part = [found for found in chosen if found.kind == kind]
        if part:
            with ThreadPoolExecutor(max_workers=8, thread_name_prefix="clean") as pool:
                errors += [error for error in pool.map(lambda found: _remove(clients, found), part) if error]
    if errors:
        raise EngineError("not everything could be removed: " + "; ".join(errors))
    return chosen


def _remove(clients: DockerClients, found: LabelledObject) -> str:
    api = clients.api
    removers: Mapping[Kind, Callable[[], object]] = {
        "container": lambda: api.remove_container(found.key, force=True, v=True),
        "network": lambda: api.remove_network(found.key),
        "volume": lambda: api.remove_volume(found.key, force=True),
    }

    def gone() -> bool:
        try:
            removers[found.kind]()
        except docker.errors.NotFound:
            return True
        except docker.errors.APIError as error:
            # Another clean-up is removing it, or the network still lists a container that has ended.
            if error.status_code in (409, 403) or "in progress" in explain(error) or "in use" in explain(error):
                last[0] = explain(error)
                return False
            raise
        return True

    last = [""]
    try:
        wait_until(gone, timeout_s=REMOVE_S, what=f"{found} to go", instead=lambda: last[0], interval_s=0.2)
    except Exception as error:
        return f"{found}: {explain(error)}"
    return ""


def describe(objects: Sequence[LabelledObject]) -> str:
    """`7 containers, 1 network, 6 volumes`; `nothing`."""
    counts = {kind: sum(found.kind == kind for found in objects) for kind in ("container", "network", "volume")}
    words = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    return ", ".join(words) or "nothing"
