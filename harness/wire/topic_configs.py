"""Reads and changes the configuration entries set on topics themselves. Brokers' defaults are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.describe_configs.v4 import request as describe
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as alter
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.static.primitive import i8

from harness.wire.cluster import Cluster
from harness.wire.frames import WireError

TOPIC: Final = 2
_SET_BY_TOPIC: Final = 1
_SET, _DELETE = i8(0), i8(1)


def own_entries(topics: Iterable[str]) -> describe.DescribeConfigsRequest:
    """The request for the entries of topics."""
    return describe.DescribeConfigsRequest(
        resources=tuple(
            describe.DescribeConfigsResource(resource_type=i8(TOPIC), resource_name=topic, configuration_keys=None)
            for topic in sorted(set(topics))
        )
    )


def entries_in(answer: DescribeConfigsResponse) -> dict[str, dict[str, str]]:
    """Topic → its own entries, out of the answer. Topics that do not exist are left out."""
    return {
        str(one.resource_name): {
            str(entry.name): str(entry.value)
            for entry in one.configs
            if int(entry.config_source) == _SET_BY_TOPIC and entry.value is not None and not entry.is_sensitive
        }
        for one in answer.results
        if one.error_code is ErrorCode.none
    }


def alteration(
    name: str, entries: Mapping[str, str | None], *, resource_type: int = TOPIC
) -> alter.IncrementalAlterConfigsRequest:
    """The request that sets entries of one topic (or another resource); None removes one."""
    return alter.IncrementalAlterConfigsRequest(
        resources=(
            alter.AlterConfigsResource(
                resource_type=i8(resource_type),
                resource_name=name,
                configs=tuple(
                    alter.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                    for key, value in sorted(entries.items())
                ),
            ),
        ),
        validate_only=False,
    )


def check_altered(topic: str, answer: IncrementalAlterConfigsResponse) -> None:
    """Raises WireError when a change was refused."""
    found = answer.responses[0]
    if found.error_code is not ErrorCode.none:
        why = f"{found.error_code.name} {found.error_message or ''}".strip()
        raise WireError(f"configuration of topic {topic} cannot be changed: {why}")


async def topic_configs(cluster: Cluster, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """Topic → its own entries. Topics that do not exist are left out. Raises WireError."""
    request = own_entries(topics)
    return entries_in(await cluster.call_any(request)) if request.resources else {}


async def alter_topic(cluster: Cluster, topic: str, entries: Mapping[str, str | None]) -> None:
    """Set entries of one topic; None removes one. Raises WireError when they are refused."""
    check_altered(topic, await cluster.call_any(alteration(topic, entries)))
