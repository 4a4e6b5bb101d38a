"""Frames of Kafka's protocol: a length, a header, a body.

Bodies are kio's dataclasses, those of our own tables where kio has none, or bytes passed on as they are.

Shared by the blocking client, the asyncio client and the server, so that all of them speak the same bytes.
"""

from __future__ import annotations

import io
import struct
from functools import cache
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from harness.core.errors import ShatterError
from harness.wire import entity_table
from harness.wire.cluster_mirror_api import PAYLOADS

MAX_FRAME: Final = 256 * 1024 * 1024  # a longer frame is not Kafka's protocol
METADATA: Final = 3
API_VERSIONS: Final = 18

_LENGTH: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhi")  # api key, version, correlation id: the same in every header version

# Versions that kio does not have yet and that only give a value a new meaning: the encoding is the older version's.
_SAME_FORM: Final = {(2, 11): 10}  # ListOffsets: timestamp -6
_OURS: Final = frozenset((key, 0) for key in PAYLOADS)


class WireError(ShatterError):
    """A broker did not answer a request of the Kafka protocol."""


def frame(body: bytes) -> bytes:
    """A body preceded by its length."""
    return _LENGTH.pack(len(body)) + body


def frame_length(prefix: bytes, peer: str) -> int:
    """The length that a frame's four first bytes announce. Raises WireError when it cannot be Kafka's."""
    size: int = _LENGTH.unpack(prefix)[0]
    if not 0 <= size <= MAX_FRAME:
        raise WireError(f"{peer} sent a frame of length {size}: it is not a Kafka broker or client")
    return size


def encode(entity: Any) -> bytes:
    """One entity (a body, a header or a part of one) as bytes."""
    if isinstance(entity, entity_table.Entity):
        return entity_table.encode(entity)
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(entity_type: type[Any], payload: bytes, offset: int = 0) -> tuple[Any, int]:
    """One entity read at an offset: (entity, offset after it). A body of our tables has to fill the payload."""
    if issubclass(entity_type, entity_table.Payload):
        return entity_table.decode_whole(entity_type, payload, offset), len(payload)
    entity, used = entity_reader(entity_type)(payload, offset)
    return entity, offset + used


def encode_request(request: Any, *, correlation_id: int, client_id: str) -> bytes:
    """A whole frame for a request of kio.schema."""
    return raw_request(
        request.__api_key__,
        request.__version__,
        encode(request),
        correlation_id=correlation_id,
        client_id=client_id,
    )


def raw_request(api_key: int, version: int, body: bytes, *, correlation_id: int, client_id: str) -> bytes:
    """A whole frame for a request whose body is already encoded at this version."""
    header_type: Any = request_type(api_key, version).__header_schema__
    header = header_type(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return frame(encode(header) + body)


def request_start(payload: bytes) -> tuple[int, int, int]:
    """(api key, version, correlation id) of a received request, known or not. Raises struct.error when cut off."""
    key, version, correlation = _REQUEST_START.unpack_from(payload)
    return key, version, correlation


def request_header(payload: bytes, api_key: int, version: int) -> tuple[Any, int]:
    """A received request's header and the offset of its body."""
    return decode(request_type(api_key, version).__header_schema__, payload)


def response_body_offset(payload: bytes, api_key: int, version: int) -> tuple[int, int]:
    """(correlation id, offset of the body) of a received response."""
    header, used = decode(response_type(api_key, version).__header_schema__, payload)
    return int(header.correlation_id), used


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header that goes before a response's body."""
    header_type: Any = response_type(api_key, version).__header_schema__
    return encode(header_type(correlation_id=correlation_id))


@cache
def request_type(api_key: int, version: int) -> Any:
    """The request's class. Raises kio's errors when there is none: ask `known_versions` first."""
    if (api_key, version) in _OURS:
        return PAYLOADS[api_key][0]
    return load_request_schema(api_key, _SAME_FORM.get((api_key, version), version))


@cache
def response_type(api_key: int, version: int) -> Any:
    """The response's class."""
    if (api_key, version) in _OURS:
        return PAYLOADS[api_key][1]
    return load_response_schema(api_key, _SAME_FORM.get((api_key, version), version))


@cache
def known_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and highest version of an API that can be encoded; None for one that is not known."""
    if api_key in PAYLOADS:
        return (0, 0)
    name = api_key_map.get(api_key)
    if name is None:
        return None
    versions = [int(v) for v, kinds in schema_name_map[name].items() if EntityType.request in kinds]
    versions += [version for key, version in _SAME_FORM if key == api_key]
    return (min(versions), max(versions)) if versions else None


def api_name(api_key: int) -> str:
    """The name of an API, for messages."""
    if api_key in PAYLOADS:
        return PAYLOADS[api_key][0].__name__.removesuffix("Request")
    return str(api_key_map.get(api_key, f"API {api_key}"))
