"""Decompression of record batches: every codec of message format v2.

Snappy comes in the framing of snappy-java ("xerial"): a 16-byte header, then blocks of big-endian length and raw
snappy bytes. Clients that are not Java may write one raw block without framing, which Kafka's readers accept too.
LZ4 is the standard frame format, gzip and zstd are plain streams.
Formats: https://kafka.apache.org/documentation/#recordbatch, and SnappyOutputStream of
https://github.com/xerial/snappy-java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import cramjam

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16

CODEC_NAMES: Mapping[int, str] = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class CodecError(ValueError):
    """The compressed part of a batch cannot be decompressed."""


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks: list[bytes] = []
    position, end = _XERIAL_HEADER, len(data)
    while position < end:
        if data.startswith(_XERIAL_MAGIC, position):  # streams may be concatenated
            position += _XERIAL_HEADER
            continue
        length = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if length <= 0 or position + length > end:
            raise CodecError(f"snappy block of {length} bytes does not fit the {end - position} bytes that are left")
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position : position + length])))
        position += length
    return b"".join(blocks)


_DECOMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: lambda data: bytes(cramjam.gzip.decompress(data)),
    2: _snappy,
    3: lambda data: bytes(cramjam.lz4.decompress(data)),
    4: lambda data: bytes(cramjam.zstd.decompress(data)),
}


def codec_name(codec: int) -> str:
    """Name of a codec number as it stands in column `compression`; `codec_n` when Kafka defines none."""
    return CODEC_NAMES.get(codec, f"codec_{codec}")


def decompress(codec: int, data: bytes) -> bytes:
    """The records part of a batch, decompressed. Raises CodecError when the bytes are not what the codec says."""
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise CodecError(f"compression codec {codec} is not one of {', '.join(CODEC_NAMES.values())}")
    try:
        return function(data)
    except CodecError:
        raise
    except (cramjam.DecompressionError, ValueError, OSError) as error:
        raise CodecError(f"{codec_name(codec)}: {error}") from error
