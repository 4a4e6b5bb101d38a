"""The images behind a run's containers, with the digests of their content, and the engine's version."""

from __future__ import annotations

import docker.errors
import requests

from harness.clusters.docker import labels as label
from harness.clusters.docker.clients import DockerClients, explain
from harness.core.errors import EngineError


def images_used(clients: DockerClients, run_id: str) -> dict[str, str]:
    """Name of each image that a container of the run was made from → the digest of its content.

    Raises: EngineError when the engine does not report them.
    """
    try:
        found = clients.api.containers(all=True, filters={"label": [f"{label.RUN}={run_id}"]})
        return {str(container["Image"]): str(container["ImageID"]) for container in found}
    except (docker.errors.APIError, requests.RequestException, KeyError) as error:
        raise EngineError(f"the engine does not say what the run's images are: {explain(error)}") from error


def engine_version(clients: DockerClients) -> str:
    """The engine's version. Raises: EngineError when it does not say."""
    try:
        return str(clients.api.version()["Version"])
    except (docker.errors.APIError, requests.RequestException, KeyError) as error:
        raise EngineError(f"the engine does not say its version: {explain(error)}") from error
