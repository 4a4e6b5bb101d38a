"""An image of a Kafka release archive, e.g. of one's own build of a branch (`./gradlew releaseTarGz`)."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.clusters.docker.image_files import add_file, compose_dir
from harness.core.errors import ImageError

REPOSITORY = "kafka-release"
_JAR = re.compile(r"(?:[^/]+/)?libs/([^/]+\.jar)")


class ReleaseArchive:
    """A release archive as the recipe of an image: its jars, and compose/release/Dockerfile.

    Raises: ImageError when the file cannot be read, is no tar archive or has no jars in its folder `libs`.
    """

    name = "release"

    def __init__(self, path: Path) -> None:
        self._path = path
        digest = hashlib.sha256((compose_dir() / "release" / "Dockerfile").read_bytes())
        self.jars: list[str] = []
        for jar, content in self._read():
            self.jars.append(jar)
            digest.update(f"\0{jar}\0{len(content)}\0".encode())
            digest.update(content)
        if not self.jars:
            raise ImageError(
                f"{path} has no jars in a folder libs: name a release archive of Kafka, such as "
                "kafka_2.13-4.2.0-SNAPSHOT.tgz"
            )
        self._hash = digest.hexdigest()[:12]

    def tag(self, version: str, *, base: str) -> str:
        """`kafka-release:VERSION-HASH`. The hash covers the jars and the base's own tag."""
        short = hashlib.sha256(f"{base}\0{self._hash}".encode()).hexdigest()[:12]
        return f"{REPOSITORY}:{version}-{short}"

    def context(self, certificates: Mapping[str, bytes]) -> bytes:
        """The build context as a tar."""
        del certificates  # nothing is downloaded
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            add_file(tar, "Dockerfile", (compose_dir() / "release" / "Dockerfile").read_bytes())
            for jar, content in self._read():
                add_file(tar, f"libs/{jar}", content)
        return buffer.getvalue()

    def _read(self) -> Iterator[tuple[str, bytes]]:
        """(name, content) of each jar, in the archive's order."""
        try:
            with tarfile.open(self._path) as archive:
                for member in archive:
                    match = _JAR.fullmatch(member.name.removeprefix("./"))
                    file = archive.extractfile(member) if match and member.isfile() else None
                    if match and file is not None:
                        yield match[1], file.read()
        except OSError as error:
            if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
                raise ImageError(f"{self._path} cannot be read ({error.strerror}): check the path") from error
            raise ImageError(f"{self._path} is damaged ({error}): download or build it again") from error
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise ImageError(f"{self._path} is no complete tar archive ({error}): build it again") from error
