"""Messages of Kafka's protocol that kio does not have, as dataclasses whose annotations are the schema.

One field of a message is one line, in the order of the wire: `str` is a string, `str | None` a nullable one, `bool`,
`uuid.UUID | None` (None is the zero UUID), `Int8` to `Int64`, `tuple[X, ...]` an array of these or of other entities.
A field whose default is `tagged(N, default)` is the tagged field N: it is written only when it differs from its
default. Classes are flexible (compact strings and arrays, tagged fields) unless they set `__flexible__ = False`.

Unlike kio, tagged fields that are not in the table are skipped, as the protocol demands: a build may have more.
Encoding: the protocol guide, https://kafka.apache.org/protocol, and KIP-482.
"""

from __future__ import annotations

import io
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin

from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import readers, writers
from kio.static.primitive import i32, uvarint

from harness.core.errors import ShatterError

T = TypeVar("T")
E = TypeVar("E", bound="Entity")

Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]

Writer = Callable[[io.BytesIO, Any], None]
Reader = Callable[[bytes, int], tuple[Any, int]]


class EntityError(ShatterError):
    """Bytes that are not a message of the table, or a value that its field cannot hold."""


class Entity:
    """Base of every class of the table; subclasses are dataclasses."""

    __flexible__: ClassVar[bool] = True


class Payload(Entity):
    """A body, of version 0."""

    __version__: ClassVar[int] = 0
    __api_key__: ClassVar[int] = -1

    def __init_subclass__(cls, *, key: int | None = None) -> None:
        if key is not None:
            cls.__api_key__ = key


class Request(Payload):
    """Base of a request's body: `class Name(Request, key=API_KEY)`."""

    __header_schema__: ClassVar[type[Any]] = RequestHeader


class Response(Payload):
    """Base of a response's body."""

    __header_schema__: ClassVar[type[Any]] = ResponseHeader


def tagged(tag: int, default: T) -> T:
    """A tagged field's default."""
    made: T = field(default=default, metadata={"tag": tag})
    return made


def encode(entity: Entity) -> bytes:
    """One entity as bytes. Raises: EntityError naming the field whose value does not fit its type."""
    columns = _columns(type(entity))
    out = io.BytesIO()
    for column in columns.plain:
        column.put(out, entity)
    if entity.__flexible__:
        given = {tag: c for tag, c in columns.tagged.items() if getattr(entity, c.name) != c.default}
        writers.write_unsigned_varint(out, uvarint(len(given)))
        for tag, column in given.items():
            value = io.BytesIO()
            column.put(value, entity)
            writers.write_unsigned_varint(out, uvarint(tag))
            writers.write_unsigned_varint(out, uvarint(len(value.getvalue())))
            out.write(value.getvalue())
    return out.getvalue()


def decode(entity_type: type[E], payload: bytes, offset: int = 0) -> tuple[E, int]:
    """One entity read at an offset: (entity, offset after it). Raises: EntityError naming the field."""
    columns = _columns(entity_type)
    values: dict[str, Any] = {}
    for column in columns.plain:
        values[column.name], offset = column.get(payload, offset)
    if entity_type.__flexible__:
        count, offset = columns.uvarint.get(payload, offset)
        for _ in range(count):
            tag, offset = columns.uvarint.get(payload, offset)
            size, offset = columns.uvarint.get(payload, offset)
            column_of_tag = columns.tagged.get(tag)
            if column_of_tag is not None:
                values[column_of_tag.name], end = column_of_tag.get(payload, offset)
                if end != offset + size:
                    raise EntityError(f"{column_of_tag.label} is {end - offset} bytes long, its tag says {size}")
            offset += size
            if offset > len(payload):
                raise EntityError(f"{entity_type.__name__}: tagged field {tag} is cut off")
    return entity_type(**values), offset


def decode_whole(entity_type: type[E], payload: bytes, offset: int = 0) -> E:
    """One entity that fills the payload from an offset to its end.

    Raises: EntityError, also for bytes that are left: the sender's message has fields that the table does not have.
    """
    entity, end = decode(entity_type, payload, offset)
    if end != len(payload):
        raise EntityError(
            f"{entity_type.__name__} has {len(payload) - end} bytes more than its table says: the sender has another "
            f"schema of it"
        )
    return entity


@dataclass(frozen=True)
class _Column:
    """One field. label: for error messages. read: (payload, offset) → (value, offset after it)."""

    label: str
    name: str
    write: Writer
    read: Reader
    default: Any = None

    def put(self, out: io.BytesIO, entity: Entity) -> None:
        value = getattr(entity, self.name)
        try:
            self.write(out, value)
        except EntityError:
            raise
        except Exception as error:  # struct.error, TypeError, AttributeError, kio's own: the value has another type
            raise EntityError(f"{self.label} cannot be {value!r}: {error}") from error

    def get(self, payload: bytes, offset: int) -> tuple[Any, int]:
        try:
            return self.read(payload, offset)
        except EntityError:
            raise
        except Exception as error:  # kio raises many kinds of errors for malformed bytes
            raise EntityError(f"{self.label} cannot be read at byte {offset}: {error}") from error


@dataclass(frozen=True)
class _Columns:
    """plain: in the order of the wire. tagged: by tag, ascending. uvarint: counts, tags and sizes of tagged fields."""

    plain: tuple[_Column, ...]
    tagged: dict[int, _Column]
    uvarint: _Column


_KNOWN: Final[dict[type[Entity], _Columns]] = {}


def _columns(entity_type: type[Entity]) -> _Columns:
    if entity_type not in _KNOWN:
        _KNOWN[entity_type] = _columns_of(entity_type)
    return _KNOWN[entity_type]


def _columns_of(entity_type: type[Any]) -> _Columns:
    name, flexible = entity_type.__name__, bool(entity_type.__flexible__)
    hints = typing.get_type_hints(entity_type, include_extras=True)
    plain, by_tag = [], {}
    for one in fields(entity_type):
        tag = one.metadata.get("tag")
        write, read = _codec(hints[one.name], flexible)
        column = _Column(f"{name}.{one.name}", one.name, write, read, one.default)
        if tag is None:
            plain.append(column)
        else:
            by_tag[tag] = column
    tags = _Column(f"the tagged fields of {name}", "", writers.write_unsigned_varint, _read_uvarint)
    return _Columns(tuple(plain), dict(sorted(by_tag.items())), tags)


def _advancing(read: Reader) -> Reader:
    """kio's readers return the bytes that they used; this package's the offset after them."""

    def advance(payload: bytes, offset: int) -> tuple[Any, int]:
        value, used = read(payload, offset)
        return value, offset + used

    return advance


_read_uvarint: Final = _advancing(readers.read_unsigned_varint)
_FIXED: Final[dict[str, tuple[Writer, Reader]]] = {
    "int8": (writers.write_int8, _advancing(readers.read_int8)),
    "int16": (writers.write_int16, _advancing(readers.read_int16)),
    "int32": (writers.write_int32, _advancing(readers.read_int32)),
    "int64": (writers.write_int64, _advancing(readers.read_int64)),
}
_UUID: Final = (writers.write_uuid, _advancing(readers.read_uuid))
_BOOL: Final = (writers.write_boolean, _advancing(readers.read_boolean))
_STRINGS: Final[dict[tuple[bool, bool], tuple[Writer, Reader]]] = {  # by (flexible, nullable)
    (True, False): (writers.write_compact_string, _advancing(readers.read_compact_string)),
    (True, True): (writers.write_nullable_compact_string, _advancing(readers.read_compact_string_nullable)),
    (False, False): (writers.write_legacy_string, _advancing(readers.read_legacy_string)),
    (False, True): (writers.write_nullable_legacy_string, _advancing(readers.read_nullable_legacy_string)),
}


def _codec(hint: Any, flexible: bool) -> tuple[Writer, Reader]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _FIXED[arguments[1]]
    if origin is tuple:
        return _array(*_codec(arguments[0], flexible), flexible)
    optional = origin is types.UnionType
    inner = next(a for a in arguments if a is not types.NoneType) if optional else hint
    if inner is str:
        return _STRINGS[flexible, optional]
    if inner is uuid.UUID:
        return _UUID
    if inner is bool:
        return _BOOL
    if isinstance(inner, type) and issubclass(inner, Entity):
        return _entity(inner)
    raise TypeError(f"no wire type is known for {hint}")


def _entity(entity_type: type[Entity]) -> tuple[Writer, Reader]:
    def write(out: io.BytesIO, entity: Entity) -> None:
        out.write(encode(entity))

    def read(payload: bytes, offset: int) -> tuple[Entity, int]:
        return decode(entity_type, payload, offset)

    return write, read


def _array(write_one: Writer, read_one: Reader, flexible: bool) -> tuple[Writer, Reader]:
    write_size = writers.write_compact_array_length if flexible else writers.write_legacy_array_length
    read_size = _advancing(readers.read_compact_array_length if flexible else readers.read_legacy_array_length)

    def write(out: io.BytesIO, values: tuple[Any, ...]) -> None:
        write_size(out, i32(len(values)))
        for value in values:
            write_one(out, value)

    def read(payload: bytes, offset: int) -> tuple[tuple[Any, ...], int]:
        size, offset = read_size(payload, offset)
        if size is None or size < 0:
            raise ValueError("the array is null")
        values = []
        for _ in range(size):
            value, offset = read_one(payload, offset)
            values.append(value)
        return tuple(values), offset

    return write, read
