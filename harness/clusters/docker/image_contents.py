"""Whether Kafka in an image has a class: looked up in the table of contents of its client library's jar."""

from __future__ import annotations

import docker
import docker.errors
import requests

from harness.clusters.docker.clients import explain
from harness.clusters.docker.image_build import LABEL
from harness.core.errors import ImageError

_JARS = "/opt/kafka/libs/kafka-clients-*.jar"  # a jar's table of contents is not compressed
_FOUND, _NOT_FOUND = "found", "not found"


def client_library_has(client: docker.DockerClient, image: str, path: str) -> bool:
    """path: of the class within the jar, without `.class`. Raises: ImageError when the image cannot be looked into."""
    script = f"if grep -q '{path}' {_JARS}; then echo {_FOUND}; else echo {_NOT_FOUND}; fi"
    try:
        output = client.containers.run(
            image, ["-c", script], entrypoint="sh", remove=True, network_mode="none", labels={LABEL: "check"}
        )
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageError(f"image {image} cannot be looked into ({explain(error)})") from error
    return output.decode(errors="replace").strip() == _FOUND
