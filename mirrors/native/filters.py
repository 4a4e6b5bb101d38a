"""Settings of a mirror (configuration resource CLUSTER_MIRROR): read, compared with what is wanted, and set.

Builds name some of them differently: the name that the build itself lists counts. One that it does not list is tried by
each of its names; a build that refuses all of them does not have it. In some builds a setting belongs to topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.describe_configs.v4 import request as describe
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from harness.wire import topic_configs
from harness.wire.cluster_mirror_api import CONFIG_RESOURCE
from harness.wire.cluster_mirror_names import names_of
from harness.wire.frames import WireError
from harness.wire.view import ClusterView

UNCLEAN: Final = "mirror.support.unclean.leader.election"
_OF_TOPICS: Final = frozenset({UNCLEAN})  # unless a build lists it among a mirror's settings
_RESOURCE: Final = i8(CONFIG_RESOURCE)


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What became of the wanted settings. unreadable: why they cannot be read; refused: setting → why not."""

    unreadable: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)


def names_to_try(listed: Mapping[str, str | None], wanted: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Setting → the names under which to set it, of those that are not as wanted. listed: the build's own.

    Nothing is tried for a setting that the build does not list and whose wanted value is empty.
    """
    found: dict[str, tuple[str, ...]] = {}
    for setting, value in wanted.items():
        own = [name for name in names_of(setting) if name in listed]
        if own and (listed[own[0]] or "") != value:
            found[setting] = (own[0],)
        elif not own and value:
            found[setting] = () if setting in _OF_TOPICS else names_of(setting)
    return found


def set_filters(view: ClusterView, mirror: str, wanted: Mapping[str, str]) -> Filters:
    """Make the settings of a mirror what is wanted, as far as the build has them. Raises nothing for a refusal."""
    try:
        listed = _listed(view.ask_any(_request(mirror)))
    except WireError as error:
        return Filters(unreadable=f"the settings of mirror {mirror} cannot be read: {error}")
    refused = {}
    for setting, names in names_to_try(listed, wanted).items():
        why = _first_accepted(view, mirror, names, wanted[setting], resource_type=CONFIG_RESOURCE)
        if why is not None:
            refused[setting] = f"mirror {mirror} has no setting {setting} in this build{f' ({why})' if why else ''}"
    return Filters(refused=refused)


def set_on_topics(view: ClusterView, topics: Iterable[str], setting: str, value: str) -> str:
    """Give topics a setting; returns why that is not possible, else empty."""
    for topic in topics:
        why = _first_accepted(view, topic, names_of(setting), value, resource_type=topic_configs.TOPIC)
        if why is not None:
            return why
    return ""


def _first_accepted(
    view: ClusterView, resource: str, names: Iterable[str], value: str, *, resource_type: int
) -> str | None:
    """Set the first of these names that is accepted; returns why none was, None if one was."""
    why = ""
    for name in names:
        request = topic_configs.alteration(resource, {name: value}, resource_type=resource_type)
        try:
            topic_configs.check_altered(resource, view.ask_any(request))
        except WireError as error:
            why = str(error)
        else:
            return None
    return why


def _request(mirror: str) -> describe.DescribeConfigsRequest:
    resource = describe.DescribeConfigsResource(resource_type=_RESOURCE, resource_name=mirror, configuration_keys=None)
    return describe.DescribeConfigsRequest(resources=(resource,))


def _listed(answer: Any) -> dict[str, str | None]:
    """Raises: WireError when the settings are not given."""
    one = answer.results[0]
    if one.error_code is not ErrorCode.none:
        raise WireError(f"{one.error_code.name.upper()} {one.error_message or ''}".strip())
    return {str(entry.name): None if entry.value is None else str(entry.value) for entry in one.configs}
