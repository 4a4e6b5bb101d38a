"""The configuration of a mirror, as its creator gave it: kept as a note beside the mirror, read and changed through
DescribeConfigs and IncrementalAlterConfigs with the resource type CLUSTER_MIRROR.

Only patterns of groups and excluded topic properties have an effect here; other entries are kept and shown.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32Timedelta

from harness.core.errors import MirrorError
from harness.wire import frames
from harness.wire.cluster_mirror_api import CONFIG_RESOURCE
from harness.wire.frames import WireError
from harness.wire.server import Handler, Request
from mirrors.reference.server.entities import kinds_of, make
from mirrors.reference.server.mirroring_api.known_mirrors import KnownMirrors
from mirrors.reference.server.mirrors import Mirrors
from mirrors.reference.server.model import MirrorConfig
from mirrors.reference.server.state_store import StateStore

Properties = Mapping[str, str]

BOOTSTRAP, SOURCE_ID = "bootstrap.servers", "mirror.source.cluster.id"
REQUIRED: Final = (BOOTSTRAP, SOURCE_ID)

GROUPS, NO_GROUPS, NO_PROPERTIES = "mirror.groups.include", "mirror.groups.exclude", "mirror.topic.properties.exclude"

_DEFAULTS: Final[Properties] = {
    GROUPS: ".*",
    NO_GROUPS: "",
    NO_PROPERTIES: "",
    "mirror.acl.include": "*",
    "mirror.support.unclean.leader.election": "true",
}
_NOTE: Final = "mirror-properties"
_SET, _DELETE = 0, 1
_SOURCE_SET, _SOURCE_DEFAULT = i8(0), i8(5)  # of a configuration entry: no number of Kafka's names mirrors; default
_TYPE_STRING: Final = i8(2)
_ZERO: Final = i32Timedelta.parse(datetime.timedelta())


def mirror_config(name: str, properties: Properties) -> MirrorConfig:
    """What the process does for a mirror with these properties, which have the required ones."""
    given = {**_DEFAULTS, **properties}
    return MirrorConfig(
        name=name,
        source=given[BOOTSTRAP],
        groups=_pattern(given[GROUPS]),
        exclude_groups=_pattern(given[NO_GROUPS]),
        exclude_configs=tuple(_listed(given[NO_PROPERTIES])),
    )


def altered(properties: Properties, configs: tuple[Any, ...]) -> dict[str, str]:
    """Properties after an incremental alteration. Raises MirrorError for an operation or entry that is not changed."""
    found = dict(properties)
    for one in configs:
        if str(one.name) in REQUIRED:
            raise MirrorError(f"{one.name} of a mirror cannot be changed; delete the mirror and create it again")
        if int(one.config_operation) == _SET and one.value is not None:
            found[str(one.name)] = str(one.value)
        elif int(one.config_operation) == _DELETE:
            found.pop(str(one.name), None)
        else:
            raise MirrorError(f"{one.name}: only entries as a whole can be set or deleted")
    return found


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pattern(text: str) -> str:
    """A comma-separated list of regular expressions as one; nothing matches an empty list."""
    return "|".join(f"(?:{part})" for part in _listed(text)) or "$^"


class PropertyRequests:
    """Answers the part of a request that is about mirrors; a real broker answers the rest."""

    def __init__(self, mirrors: Mirrors, store: StateStore, known: KnownMirrors) -> None:
        self._known = known
        self._mirrors = mirrors
        self._store = store

    def of(self, mirror: str) -> Properties:
        """A mirror's properties; those of one that was not created by a request are its bootstrap servers."""
        noted: Properties = self._store.notes(_NOTE).get(mirror, {})
        return noted or {BOOTSTRAP: self._mirrors.configs[mirror].source}

    async def keep(self, mirror: str, properties: Properties | None) -> None:
        """Store a mirror's properties; None forgets them. Raises MirrorError."""
        await self._store.put_note(_NOTE, mirror, None if properties is None else dict(properties))

    async def describe(self, request: Request, handler: Handler) -> Any:
        """DescribeConfigs."""
        return await self._shared(request, handler, self._described, results="results")

    async def alter(self, request: Request, handler: Handler) -> Any:
        """IncrementalAlterConfigs."""
        return await self._shared(request, handler, self._altered, results="responses")

    async def _shared(self, request: Request, handler: Handler, answer: Any, *, results: str) -> Any:
        asked = request.decode()
        own = [one for one in asked.resources if int(one.resource_type) == CONFIG_RESOURCE]
        if not own:
            return await handler(request)
        await self._known.refresh()
        ours = tuple([await answer(request, asked, one) for one in own])
        rest = tuple(one for one in asked.resources if one not in own)
        response = frames.response_type(request.api_key, request.version)
        if not rest:
            return response(throttle_time=_ZERO, **{results: ours})
        passed_on = replace(request, payload=frames.encode(replace(asked, resources=rest)), offset=0)
        theirs = frames.decode(response, b"".join(await handler(passed_on)))[0]
        return replace(theirs, **{results: (*getattr(theirs, results), *ours)})

    async def _described(self, request: Request, _: Any, resource: Any) -> Any:
        kinds, name = kinds_of(request.api_key, request.version), str(resource.resource_name)
        error = self._unknown(name)
        wanted = resource.configuration_keys
        own: Properties = {} if error else self.of(name)
        entries: Properties = {} if error else {**_DEFAULTS, **own}
        return make(
            kinds.DescribeConfigsResult,
            error_code=ErrorCode.invalid_request if error else ErrorCode.none,
            error_message=error,
            resource_type=i8(CONFIG_RESOURCE),
            resource_name=name,
            configs=tuple(
                make(
                    kinds.DescribeConfigsResourceResult,
                    name=key,
                    value=value,
                    read_only=key in REQUIRED,
                    config_source=_SOURCE_SET if key in own else _SOURCE_DEFAULT,
                    is_sensitive=False,
                    synonyms=(),
                    config_type=_TYPE_STRING,
                    documentation=None,
                )
                for key, value in sorted(entries.items())
                if not wanted or key in wanted
            ),
        )

    async def _altered(self, request: Request, asked: Any, resource: Any) -> Any:
        kinds, name = kinds_of(request.api_key, request.version), str(resource.resource_name)
        error = self._unknown(name)
        if error is None:
            try:
                await self._alter(name, resource.configs, only_check=bool(asked.validate_only))
            except (MirrorError, WireError) as refused:
                error = str(refused)
        return kinds.AlterConfigsResourceResponse(
            error_code=ErrorCode.invalid_request if error else ErrorCode.none,
            error_message=error,
            resource_type=i8(CONFIG_RESOURCE),
            resource_name=name,
        )

    async def _alter(self, mirror: str, configs: tuple[Any, ...], *, only_check: bool) -> None:
        before = self._mirrors.configs[mirror]
        properties = altered(self.of(mirror), configs)
        made = mirror_config(mirror, properties)
        made.check()
        if not only_check:
            await self.keep(mirror, properties)
            await self._mirrors.change(replace(made, all_topics=before.all_topics))

    def _unknown(self, mirror: str) -> str | None:
        return None if mirror in self._mirrors.configs else f"no mirror is called {mirror!r}"
