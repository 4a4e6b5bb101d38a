"""The TOML file of mirror `external`: checked in full before anything starts."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.core import contracts
from harness.core.errors import UsageError
from harness.core.given import parse_toml, read_given
from harness.topology.mirror import Capability

PLACEHOLDERS: Final = (
    *("source", "destination", "source_bootstrap", "destination_bootstrap", "topics", "address", "number"),
)
KAFKA_IMAGE: Final = "kafka"
"""Stands for the image of MirrorMaker 2, which has an entry point of its own."""
CONFIG: Final = "config"
_KNOWN: Final = dict.fromkeys(PLACEHOLDERS, "")

Text = Annotated[str, Field(min_length=1)]


class Container(BaseModel):
    """The mirror's container. image: a name, or `kafka` for the one of MirrorMaker 2."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: Text
    entry_point: tuple[str, ...] = Field(default=(), alias="entry-point")
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = Field(default_factory=dict)
    files: Mapping[str, str] = Field(default_factory=dict)


class ExternalConfig(BaseModel):
    """The whole file. start, stop, describe: commands; in the (first) container if there is one, else on this machine.

    fails_back: it can mirror back over the old source's log, with source and destination exchanged. links: the ends
    that it reaches through the proxy. nodes: containers, all alike.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    contract: Text
    topic_prefix: str = Field(default="", alias="topic-prefix")
    capabilities: Mapping[Capability, Annotated[bool, Field(strict=True)]] = Field(default_factory=dict)
    fails_back: Annotated[bool, Field(strict=True, alias="fails-back")] = False
    links: Annotated[tuple[Literal["source", "destination"], ...], Field(min_length=1)] = ("source", "destination")
    nodes: Annotated[int, Field(strict=True, ge=1, le=9)] = 1
    container: Container | None = None
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    describe: tuple[str, ...] = ()


OPTIONS: Final = {CONFIG: "the TOML file with the mirror's commands to start, stop and describe it; required"}


def read_config(options: Mapping[str, str], texts: Mapping[str, str] | None = None) -> ExternalConfig:
    """The file that `--mirror-option config=FILE` names. texts: contents of files that were read before, by their
    names.

    Raises: UsageError naming file, key and fix.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"mirror external has no option {unknown[0]!r}; it has config=FILE")
    if CONFIG not in options:
        raise UsageError("mirror external needs --mirror-option config=FILE, a TOML file (docs/external.md)")
    path = options[CONFIG]
    text = (texts or {}).get(path)
    document = parse_toml(read_given(path, what="the mirror's file") if text is None else text, where=path)
    try:
        config = ExternalConfig.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{path}: key {key!r}: {first['msg'].lower()}") from error
    if (config.container is None) == (not config.start):
        raise UsageError(f"{path}: name either a [container] or a `start` command")
    if config.container is not None and config.container.image == KAFKA_IMAGE and config.container.entry_point:
        raise UsageError(
            f"{path}: key 'container.entry-point' needs an image of its own, {KAFKA_IMAGE!r} has the entry point "
            "that starts MirrorMaker 2; leave it out, or name the image"
        )
    if config.container is None and "nodes" in config.model_fields_set:
        raise UsageError(f"{path}: key 'nodes' counts containers, and there is none; leave it out")
    for key, words in (("start", config.start), ("stop", config.stop), ("describe", config.describe)):
        if words and not words[0].strip():
            raise UsageError(f"{path}: key {key!r} begins with an empty word; begin with the command")
    contracts.load(config.contract)
    for said in _texts(config):
        filled(said, _KNOWN, where=path)
    return config


def filled(text: str, values: Mapping[str, str], *, where: str = "") -> str:
    """`${name}` replaced. Raises: UsageError for an unknown name; `$$` is a dollar sign."""
    try:
        return string.Template(text).substitute(values)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{where}: {text.strip()[:60]!r} holds an unknown placeholder ({error}); there are "
            + ", ".join(f"${{{name}}}" for name in PLACEHOLDERS)
        ) from error


def _texts(config: ExternalConfig) -> list[str]:
    found = [config.topic_prefix, *config.start, *config.stop, *config.describe]
    if config.container is not None:
        container = config.container
        found += [*container.command, *container.files.values(), *container.environment.values()]
    return found
