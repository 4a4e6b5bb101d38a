"""The TOML file of mirror `external`: checked in full before anything starts."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness import contracts
from harness.errors import UsageError
from harness.mirrors.base import Capability

PLACEHOLDERS: Final = ("source", "destination", "source_bootstrap", "destination_bootstrap", "topics", "address")
_KNOWN: Final = dict.fromkeys(PLACEHOLDERS, "")


class Container(BaseModel):
    """The container that the mirror is. image: a name, or `kafka` for the one of MirrorMaker 2."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str
    entry_point: tuple[str, ...] = Field(default=(), alias="entry-point")
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = Field(default_factory=dict)
    files: Mapping[str, str] = Field(default_factory=dict)


class ExternalConfig(BaseModel):
    """The whole file. start, stop, describe: commands; in the container where there is one, else on this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(default="", exclude=True)
    contract: str
    topic_prefix: str = Field(default="", alias="topic-prefix")
    capabilities: Mapping[Capability, bool] = Field(default_factory=dict)
    container: Container | None = None
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    describe: tuple[str, ...] = ()


OPTIONS: Final = {"config": "the TOML file that says how the mirror is started, stopped and described; required"}


def read_config(options: Mapping[str, str]) -> ExternalConfig:
    """The file that `--mirror-option config=FILE` names. Raises: UsageError naming file, key and mend."""
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"mirror external has no option {unknown[0]!r}; it has config=FILE")
    if "config" not in options:
        raise UsageError("mirror external needs --mirror-option config=FILE, a TOML file (docs/external.md)")
    path = options["config"]
    try:
        document: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        config = ExternalConfig.model_validate({**document, "path": path})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: key {key!r}: {first['msg'].lower()}") from error
    if (config.container is None) == (not config.start):
        raise UsageError(f"{path}: name either a [container] or a `start` command")
    contracts.load(config.contract)
    for text in _texts(config):
        filled(text, _KNOWN, where=path)
    return config


def filled(text: str, values: Mapping[str, str], *, where: str = "") -> str:
    """`${name}` replaced. Raises: UsageError for a name that there is not; `$$` is a dollar sign."""
    try:
        return string.Template(text).substitute(values)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{where}: {text.strip()[:60]!r} holds a placeholder that there is not ({error}); there are "
            + ", ".join(f"${{{name}}}" for name in PLACEHOLDERS)
        ) from error


def _texts(config: ExternalConfig) -> list[str]:
    found = [config.topic_prefix, *config.start, *config.stop, *config.describe]
    if config.container is not None:
        container = config.container
        found += [*container.command, *container.files.values(), *container.environment.values()]
    return found
