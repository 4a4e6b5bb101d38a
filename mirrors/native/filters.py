"""Settings of a mirror (configuration resource CLUSTER_MIRROR): read, compared with what is wanted, and set.

Builds name some of them differently: the name that the build itself lists counts. A setting that it lists under no
name is one that it does not have.
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
from harness.wire.cluster_mirror_names import SETTINGS, known_name
from harness.wire.frames import WireError
from harness.wire.view import ClusterView


@dataclass(frozen=True, kw_only=True)
class Filters:
    """The settings as the build has them. listed: name → value, None when they cannot be read (why_not).

    refused: setting → why the build did not accept its value.
    """

    listed: Mapping[str, str | None] | None = None
    why_not: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    def lacks(self, setting: str) -> str:
        """Why a setting is not as it was wanted; empty when it is, or when that is not known."""
        if setting in self.refused:
            return self.refused[setting]
        if self.listed is not None and known_name(setting, self.listed) is None:
            return f"this build lists no setting {setting} of a mirror"
        return ""


def differing(listed: Mapping[str, str | None], wanted: Mapping[str, str]) -> dict[str, str]:
    """Setting → its name in the build, of those that the build has with another value."""
    names = {setting: known_name(setting, listed) for setting in wanted}
    return {
        setting: name for setting, name in names.items() if name is not None and (listed[name] or "") != wanted[setting]
    }


def set_filters(view: ClusterView, mirror: str, wanted: Mapping[str, str]) -> Filters:
    """Make the settings of a mirror what is wanted, as far as the build has them. Raises nothing for a refusal."""
    try:
        listed = _listed(view.ask_any(_request(mirror)))
    except WireError as error:
        return Filters(why_not=str(error))
    refused = {}
    for setting, name in differing(listed, wanted).items():
        entries = {name: wanted[setting]}
        try:
            answer = view.ask_any(topic_configs.alteration(mirror, entries, resource_type=CONFIG_RESOURCE))
        except WireError as error:
            refused[setting] = str(error)
            continue
        one = answer.responses[0]
        if one.error_code is not ErrorCode.none:
            why = f"{one.error_code.name.upper()} {one.error_message or ''}".strip()
            refused[setting] = f"the build refused {name}={wanted[setting]} of mirror {mirror}: {why}"
    return Filters(listed=listed, refused=refused)


_RESOURCE: Final = i8(CONFIG_RESOURCE)


def _request(mirror: str) -> describe.DescribeConfigsRequest:
    return describe.DescribeConfigsRequest(
        resources=(
            describe.DescribeConfigsResource(resource_type=_RESOURCE, resource_name=mirror, configuration_keys=None),
        )
    )


def _listed(answer: Any) -> dict[str, str | None]:
    """Raises: WireError when the settings are not given."""
    one = answer.results[0]
    if one.error_code is not ErrorCode.none:
        why = f"{one.error_code.name.upper()} {one.error_message or ''}".strip()
        raise WireError(f"the settings of mirror {one.resource_name} cannot be read: {why}")
    return {str(entry.name): None if entry.value is None else str(entry.value) for entry in one.configs}


def set_on_topics(view: ClusterView, topics: Iterable[str], setting: str, value: str) -> str:
    """Give topics a setting, for builds in which it belongs to topics; returns why that is not possible, else empty."""
    why = ""
    for topic in topics:
        for name in SETTINGS.get(setting, (setting,)):
            try:
                topic_configs.check_altered(topic, view.ask_any(topic_configs.alteration(topic, {name: value})))
            except WireError as error:
                why = str(error)
            else:
                break
        else:
            return why
    return ""
