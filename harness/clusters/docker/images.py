"""The images that a run uses, and how they are built or pulled.

Our images are named by the hash of what they are built from: an image that exists is the right one, and a changed
recipe makes a new name. A user's own Kafka image is pulled when it is absent and checked for the official layout;
a bare version with a recipe (`compose/kafka-VERSION`) is built instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import docker
import docker.errors
import requests

from harness.clusters.docker import image_build
from harness.clusters.docker.clients import explain
from harness.clusters.docker.image_build import BUILD_LIMIT_S, LABEL, PUBLIC_BASE, Progress
from harness.clusters.docker.image_files import (
    Recipe,
    brokers_recipe,
    brokers_versions,
    cache_dir,
    entry_archive,
    recipe,
)
from harness.clusters.docker.release_archive import ReleaseArchive
from harness.clusters.plan.entry import ENTRY_POINT
from harness.core.errors import ImageError
from harness.core.locks import file_lock

__all__ = [
    "LABEL",
    "ImageSet",
    "ImagePlan",
    "ensure_images",
    "entry_archive",
    "layout_version",
    "missing_images",
    "plan_images",
    "prune_images",
    "release_image",
]

_LIBS = "/opt/kafka/libs"
_VERSION = r"(\d[\w.-]*?)(?<!-sources)(?<!-javadoc)(?<!-scaladoc)(?<!-test)(?<!-test-sources)"
_KAFKA_JAR = re.compile(rf"^kafka_2\.\d+-{_VERSION}\.jar$")
_MIRROR_JAR = re.compile(rf"^connect-mirror-{_VERSION}\.jar$")
_PRUNE_S = 600


@dataclass(frozen=True)
class ImagePlan:
    """The names that this version's own images have. brokers: by version, built only when they are asked for."""

    base: str
    kafka: str
    toxiproxy: str
    reference: str
    brokers: Mapping[str, str]

    @property
    def finished(self) -> Mapping[str, str]:
        """Recipe → name of every image that runs; the base is needed only to build them."""
        return {"kafka": self.kafka, "toxiproxy": self.toxiproxy, "reference": self.reference}


@dataclass(frozen=True)
class BrokerImage:
    """An image of brokers and controllers, and its version of Kafka."""

    name: str
    kafka_version: str


@dataclass(frozen=True)
class ImageSet:
    """The images of a run.

    `kafka` runs brokers and controllers, unless `source` or `destination` says otherwise; `mirror` runs MirrorMaker 2
    (ours when the user's image has none), of version `mirror_version`;
    `reference` runs the reference mirror;
    `tools` has iptables, ip and ss, to be run inside another container's network. `entry_point` is the command that
    starts Kafka in any of them once `entry_archive()` was put into the container's `/`.
    """

    kafka: str
    mirror: str
    toxiproxy: str
    reference: str
    tools: str
    kafka_version: str
    own_kafka: bool
    mirror_version: str = ""
    entry_point: tuple[str, ...] = ("sh", ENTRY_POINT)
    source: BrokerImage | None = None
    destination: BrokerImage | None = None

    def brokers(self, *, source: bool) -> BrokerImage:
        """The image of the source's brokers, or of any other cluster's."""
        return (self.source if source else self.destination) or BrokerImage(self.kafka, self.kafka_version)

    @property
    def versions(self) -> str:
        """Its versions of Kafka, in words."""
        source, other = self.brokers(source=True).kafka_version, self.brokers(source=False).kafka_version
        return source if source == other else f"{source} on the source, {other} on the destination"


def plan_images() -> ImagePlan:
    """The names of this version's images, from the files that they are built from."""
    base = recipe("base").tag()
    kafka = recipe("kafka").tag(base=base)
    return ImagePlan(
        base=base,
        kafka=kafka,
        toxiproxy=recipe("toxiproxy").tag(base=base),
        reference=recipe("reference").tag(base=base),
        brokers={version: _brokers(version).tag(base=kafka) for version in brokers_versions()},
    )


def missing_images(client: docker.DockerClient, plan: ImagePlan | None = None) -> list[str]:
    """Which of our finished images the engine does not have (the base is needed only to build them)."""
    plan = plan or plan_images()
    return [name for name in plan.finished.values() if not _exists(client, name)]


def ensure_images(
    client: docker.DockerClient,
    *,
    kafka_image: str | None = None,
    source_image: str | None = None,
    destination_image: str | None = None,
    on_progress: Progress | None = None,
) -> ImageSet:
    """Build, make or pull whatever is missing, and return the images of a run.

    kafka_image: an image's name, or a version of brokers that there is a recipe of; source_image, destination_image:
    the same for the brokers of the source alone, and of the other clusters. `on_progress` gets the image and
    one line per step, e.g. ("kafka", "step 8/18 RUN mvn ..."). Two calls at once on one machine do not build twice:
    the second waits for the first.

    Raises: ImageError (an image does not exist, cannot be pulled or built, or lacks the layout).
    """
    tell = on_progress or _silent
    plan = plan_images()
    if missing_images(client, plan):
        with _building(tell):
            _build_missing(client, plan, tell)
    own_version = _own_kafka_version()
    kafka, mirror_version = _brokers_image(client, kafka_image, plan, tell)
    mirror = kafka.name if mirror_version == kafka.kafka_version else plan.kafka
    return ImageSet(
        kafka=kafka.name,
        mirror=mirror,
        toxiproxy=plan.toxiproxy,
        reference=plan.reference,
        tools=plan.kafka,
        kafka_version=kafka.kafka_version,
        own_kafka=kafka.name == plan.kafka,
        mirror_version=kafka.kafka_version if mirror == kafka.name else own_version,
        source=_brokers_image(client, source_image, plan, tell)[0] if source_image else None,
        destination=_brokers_image(client, destination_image, plan, tell)[0] if destination_image else None,
    )


def _brokers_image(
    client: docker.DockerClient, chosen: str | None, plan: ImagePlan, tell: Progress
) -> tuple[BrokerImage, str | None]:
    """An image of brokers, built or pulled when it is missing, and its version of MirrorMaker 2, if it has one."""
    own_version = _own_kafka_version()
    if chosen in (None, own_version):
        return BrokerImage(plan.kafka, own_version), own_version
    assert chosen is not None
    if chosen in plan.brokers:
        name = _ensure_brokers(client, chosen, plan, tell)
    else:
        name = chosen
        _ensure_user_image(client, name, tell)
    version, mirror_version = layout_version(client, name)
    return BrokerImage(name, version), mirror_version


def release_image(client: docker.DockerClient, archive: Path, *, on_progress: Progress | None = None) -> BrokerImage:
    """The image of a release archive of Kafka, built when it is absent, on our own image of Kafka.

    Raises: ImageError when the file is not a release archive of Kafka 4.0 or newer, or the image cannot be built.
    """
    tell = on_progress or _silent
    release = ReleaseArchive(archive)
    version, _ = versions_of(f"archive {archive}", release.jars, "a release archive of Kafka 4.0 or newer")
    ensure_images(client, on_progress=tell)
    base = plan_images().kafka
    name = release.tag(version, base=base)
    if not _exists(client, name):
        with _building(tell):
            if not _exists(client, name):
                image_build.build(client, release, name, base=base, on_progress=tell)
    return BrokerImage(name, version)


def layout_version(client: docker.DockerClient, image: str) -> tuple[str, str | None]:
    """(Kafka's version, MirrorMaker 2's version or None) in an image with the official layout.

    Raises: ImageError when /opt/kafka/libs has no Kafka, or the image has no shell to list files with.
    """
    wanted = f"an image with Kafka's jars in {_LIBS} as apache/kafka has (4.0 or newer)"
    try:
        output = client.containers.run(
            image, ["-c", f"ls {_LIBS} && (command -v java || ls /opt/java/bin/java)"],
            entrypoint="sh", remove=True, network_mode="none", labels={LABEL: "check"},
        )  # fmt: skip
    except docker.errors.ContainerError as error:
        words = _text(error.stderr or b"").strip().splitlines()
        raise ImageError(f"image {image} cannot be used ({words[-1] if words else error}): name {wanted}") from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageError(f"image {image} cannot be looked into ({explain(error)}): name {wanted}") from error
    return versions_of(f"image {image}", _text(output).split(), wanted)


def versions_of(image: str, names: list[str], wanted: str = "another image") -> tuple[str, str | None]:
    """(Kafka's version, MirrorMaker 2's or None) from the file names in the libs folder. Raises ImageError.

    image: of what, in the message. wanted: what to name instead.
    """
    kafka = [match[1] for name in names if (match := _KAFKA_JAR.match(name))]
    mirror = [match[1] for name in names if (match := _MIRROR_JAR.match(name))]
    if len(kafka) != 1:
        found = "no kafka_2.13-*.jar" if not kafka else f"several Kafkas ({', '.join(kafka)})"
        raise ImageError(f"{image} has {found} in its libs: name {wanted}")
    if int(kafka[0].split(".")[0]) < 4:
        raise ImageError(f"{image} has Kafka {kafka[0]}, which logs and formats in another way: name {wanted}")
    return kafka[0], mirror[0] if len(mirror) == 1 else None


def outdated(tags: Iterable[str], plan: ImagePlan) -> list[str]:
    """Those of our tags that are not of this version."""
    current = (plan.base, *plan.finished.values(), *plan.brokers.values())
    return [tag for tag in tags if tag.startswith("shatterproof/") and tag not in current]


def prune_images(client: docker.DockerClient) -> tuple[int, int]:
    """Remove images of ours that this version does not use, and the layers of build stages.

    Returns (images removed, bytes freed). Images in use stay.
    """
    plan = plan_images()
    removed = 0
    for image in client.images.list(filters={"label": f"{LABEL}=1"}):
        for name in outdated(image.tags, plan):
            try:
                client.images.remove(name)
                removed += 1
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):  # gone meanwhile, or in use
                    raise ImageError(f"cannot remove image {name}: {explain(error)}") from error
    client.api.timeout = _PRUNE_S  # deleting gigabytes of small files takes a disk its time
    freed = client.images.prune(filters={"dangling": True, "label": LABEL})
    return removed + len(freed.get("ImagesDeleted") or []), int(freed.get("SpaceReclaimed") or 0)


def _build_missing(client: docker.DockerClient, plan: ImagePlan, tell: Progress) -> None:
    wanted = [(recipe(name), tag) for name, tag in plan.finished.items() if not _exists(client, tag)]
    if not wanted:  # another process built them while this one waited for the lock
        return
    if not _exists(client, plan.base):
        _get_base(client, plan.base, tell)
    image_build.build_all(wanted, base=plan.base, on_progress=tell)


def _get_base(client: docker.DockerClient, tag: str, tell: Progress) -> None:
    """Our base: the public one (present or pulled) with our label, or else one made here."""
    base = recipe("base")
    try:
        if not _exists(client, PUBLIC_BASE):
            image_build.pull(client, PUBLIC_BASE, on_progress=tell, shown="base")
    except (docker.errors.DockerException, requests.RequestException) as error:
        tell("base", f"{PUBLIC_BASE} cannot be pulled ({_brief(error)}): making it from Debian's packages")
        image_build.make_base(client, base, tag, on_progress=tell)
        return
    image_build.build(client, base, tag, base=PUBLIC_BASE, on_progress=tell)


def _building(tell: Progress) -> AbstractContextManager[None]:
    """No other process on this machine builds meanwhile."""
    return file_lock(
        cache_dir() / "images.lock",
        what="another process that builds the images",
        timeout_s=BUILD_LIMIT_S,
        waiting=lambda: tell("images", "another process builds them: waiting for it"),
    )


def _brokers(version: str) -> Recipe:
    found = brokers_recipe(version)
    assert found is not None
    return found


def _ensure_brokers(client: docker.DockerClient, version: str, plan: ImagePlan, tell: Progress) -> str:
    """The name of the image with brokers of another version, built when it is absent."""
    name = plan.brokers[version]
    if not _exists(client, name):
        with _building(tell):
            if not _exists(client, name):
                image_build.build(client, _brokers(version), name, base=plan.kafka, on_progress=tell)
    return name


def _ensure_user_image(client: docker.DockerClient, name: str, tell: Progress) -> None:
    if _exists(client, name):
        return
    try:
        image_build.pull(client, name, on_progress=tell)
    except docker.errors.NotFound as error:
        raise ImageError(
            f"image {name} does not exist: neither this engine nor its registry has it ({_brief(error)}); check the "
            "name and the tag given to --kafka-image"
        ) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        words = _brief(error)
        if re.search(
            r"denied|forbidden|credentials|unauthori[sz]ed|not found|manifest unknown|invalid reference",
            words,
            re.IGNORECASE,
        ):
            fix = "check the name and the tag given to --kafka-image; for a private registry call `docker login` first"
        else:
            fix = (
                "the registry cannot be reached from the engine: bring the image by hand (`docker load`), or leave out "
                "--kafka-image to use our own"
            )
        raise ImageError(f"image {name} is not on this engine and cannot be pulled ({words}); {fix}") from error


def _own_kafka_version() -> str:
    text = (recipe("kafka").folder / "pom.xml").read_text(encoding="utf-8")
    match = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", text)
    if match is None:
        raise ImageError("compose/kafka/pom.xml has no kafka.version: install shatterproof again")
    return match[1]


def _exists(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    except (docker.errors.DockerException, requests.RequestException) as error:
        if "invalid reference" in explain(error):
            raise ImageError(f"{name!r} is not an image name: write one such as apache/kafka:4.3.1") from error
        raise ImageError(f"the engine cannot say whether it has image {name}: {explain(error)}") from error
    return True


def _brief(error: Exception) -> str:
    return " ".join(explain(error).split())[:300]


def _text(output: str | bytes) -> str:
    return output if isinstance(output, str) else output.decode(errors="replace")


def _silent(image: str, line: str) -> None:
    del image, line
