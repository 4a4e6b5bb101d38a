"""The files that images are built from: their folders, their hash, and the build context made of them."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.clusters.plan.entry import ENTRY_DIR
from harness.core.errors import ImageError

_ENTRY_FILES = ("run-kafka.sh", "log4j2.properties")

# Folders of administrators' own certificates, by distribution. Behind a proxy that inspects TLS,
# a build without them cannot reach any package registry.
_ANCHORS = (
    "/usr/local/share/ca-certificates",
    "/etc/pki/ca-trust/source/anchors",
    "/etc/ca-certificates/trust-source/anchors",
)
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")

# Imports of the reference mirror's process. mirrors/__init__.py is left out on purpose: it
# is the registry of all drivers, and the image must not change with every one of them.
_MIRROR_CODE = (
    "harness/__init__.py",
    "harness/core/__init__.py",
    "harness/core/errors.py",
    "harness/core/internal_topics.py",
    "harness/wire/*.py",
    "mirrors/reference/__init__.py",
    "mirrors/reference/server/*.py",
    "mirrors/reference/server/mirroring_api/*.py",
)


@dataclass(frozen=True)
class Recipe:
    """One of our images: its name without repository and tag, and the folder it is built from.

    code: patterns of our own packages' files that go with it, under `code/`.
    """

    name: str
    folder: Path
    code: tuple[str, ...] = ()

    def files(self) -> list[tuple[str, Path]]:
        """(path within the context, file), sorted; without the certificates, which belong to the machine, and without
        hidden files and backups, which editors and desktops leave."""
        packages = Path(__file__).resolve().parents[3]
        found = [
            (f"code/{path.relative_to(packages).as_posix()}", path)
            for pattern in self.code
            for path in sorted(packages.glob(pattern))
            if not path.name.startswith(".")
        ]
        for path in sorted(self.folder.rglob("*")):
            relative = path.relative_to(self.folder).as_posix()
            skipped = path.name.startswith(".") or path.name.endswith("~") or re.fullmatch(r"ca/.*\.crt", relative)
            if path.is_file() and not skipped:
                found.append((relative, path))
        return sorted(found)

    def tag(self, *, base: str = "") -> str:
        """`shatterproof/NAME:HASH`; the hash covers every file and the base's own tag."""
        digest = hashlib.sha256(base.encode())
        for relative, path in self.files():
            content = path.read_bytes()
            digest.update(f"\0{relative}\0{_is_script(relative):d}\0{len(content)}\0".encode())
            digest.update(content)
        return f"shatterproof/{self.name}:{digest.hexdigest()[:12]}"

    def context(self, certificates: Mapping[str, bytes]) -> bytes:
        """The build context as a tar: the files, and the machine's certificates under ca/."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for relative, path in self.files():
                add_file(tar, relative, path.read_bytes(), executable=_is_script(relative))
            for name, content in certificates.items():
                add_file(tar, f"ca/{name}", content)
            for path in sorted((self.folder / "ca").glob("*.crt")):
                if path.name not in certificates:
                    add_file(tar, f"ca/{path.name}", path.read_bytes())
        return buffer.getvalue()


def compose_dir() -> Path:
    """The folder `compose/`: next to the packages in a work tree, inside `harness` once installed.

    Raises: ImageError when it is in neither place.
    """
    harness = Path(__file__).resolve().parents[2]
    for candidate in (harness / "_compose", harness.parent / "compose"):
        if (candidate / "kafka" / "Dockerfile").is_file():
            return candidate
    raise ImageError(
        f"the image files are missing: neither {harness / '_compose'} nor {harness.parent / 'compose'} has "
        "kafka/Dockerfile; install shatterproof again"
    )


def recipe(name: str) -> Recipe:
    """The recipe of `base`, `kafka`, `toxiproxy` or `reference`."""
    return Recipe(name, compose_dir() / name, _MIRROR_CODE if name == "reference" else ())


def brokers_recipe(version: str) -> Recipe | None:
    """The recipe of brokers of another version than our own image's, made from that; None when there is none.

    `compose/kafka-VERSION/`.
    """
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        return None
    found = Recipe(f"kafka-{version}", compose_dir() / f"kafka-{version}")
    return found if found.folder.is_dir() else None


def brokers_versions() -> list[str]:
    """The versions that `brokers_recipe` knows."""
    return sorted(folder.name.removeprefix("kafka-") for folder in compose_dir().glob("kafka-*") if folder.is_dir())


def entry_archive() -> bytes:
    """A tar to put into `/` of a container of any Kafka image: run-kafka.sh and its log configuration.

    It holds no class archive and no template: in an official image the script then starts plain Java.
    """
    folder = compose_dir() / "kafka"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _ENTRY_FILES:
            content = (folder / name).read_bytes()
            add_file(tar, f"{ENTRY_DIR.lstrip('/')}/{name}", content, executable=_is_script(name))
    return buffer.getvalue()


def host_certificates(folders: Iterable[str | Path] = _ANCHORS) -> dict[str, bytes]:
    """File name → PEM of the certificates that this machine's administrator added, one certificate per file."""
    found: dict[str, bytes] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("**/*")):
            if path.suffix not in (".crt", ".pem") or not path.is_file():
                continue
            try:
                parts = _split_pem(path.read_bytes())
            except OSError:
                continue  # not readable for us: the build reports it if it needed it
            for index, part in enumerate(parts):
                found[f"host-{path.stem}-{index}.crt"] = part
    return found


def proxy_arguments(environment: Mapping[str, str]) -> dict[str, str]:
    """Build arguments for the HTTP proxies of the environment; those on this host's loopback are left out,
    because a build cannot reach them.

    Docker keeps these predefined arguments out of the image and of its cache.
    """
    found: dict[str, str] = {}
    for name in _PROXY_VARIABLES:
        value = environment.get(name) or environment.get(name.upper(), "")
        host = urlsplit(value).hostname or ""
        if value and (name == "no_proxy" or not (host == "localhost" or host.startswith("127.") or host == "::1")):
            found[name] = value
            found[name.upper()] = value
    return found if found.keys() - {"no_proxy", "NO_PROXY"} else {}


def cache_dir() -> Path:
    """A folder of this user's for locks and build logs; made when it is missing."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "shatterproof"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(f"cannot make {folder} ({error.strerror}): set XDG_CACHE_HOME to a writable folder") from error
    return folder


def _is_script(name: str) -> bool:
    """Executable by its name: the file's own bit does not survive every archive and file system."""
    return name.endswith(".sh")


def _split_pem(content: bytes) -> list[bytes]:
    """The certificates in a PEM file, each with its own begin and end lines."""
    parts: list[bytes] = []
    end = b"-----END CERTIFICATE-----"
    for chunk in content.split(b"-----BEGIN CERTIFICATE-----")[1:]:
        body, found, _ = chunk.partition(end)
        if found:
            parts.append(b"-----BEGIN CERTIFICATE-----" + body + end + b"\n")
    return parts


def add_file(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool = False) -> None:
    """Add a file without owner and time, so that equal content makes equal archives."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o755 if executable else 0o644  # times stay 0: the engine's layer cache then sees equal files
    tar.addfile(info, io.BytesIO(content))
