"""Decompression of record batches: every codec of message format v2.

Snappy comes in the framing of snappy-java ("xerial"): a 16-byte header, then blocks of big-endian length and raw
snappy bytes. Clients that are not Java may write one raw block without framing, which Kafka's readers accept too.
LZ4 is the standard frame format, gzip and zstd are plain streams.
Formats: https://kafka.apache.org/documentation/#recordbatch, and SnappyOutputStream of
https://github.com/xerial/snappy-java.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import cramjam

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16

CODEC_NAMES: Mapping[int, str] = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


class CodecError(ValueError):
    """The compressed part of a batch cannot be decompressed."""


MOST_BYTES = 256 << 20
"""Limit of one decompressed batch. Kafka accepts 1 MB compressed; a larger batch is damaged or malicious."""
_TOO_MUCH = f"the batch decompresses to more than {MOST_BYTES >> 20} MiB"
_buffers = threading.local()


def _raw_snappy(data: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > MOST_BYTES:  # as its first bytes say
        raise CodecError(_TOO_MUCH)
    return bytes(cramjam.snappy.decompress_raw(data))


def _snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _raw_snappy(data)
    blocks: list[bytes] = []
    position, end, unfolded = _XERIAL_HEADER, len(data), 0
    while position < end:
        if data.startswith(_XERIAL_MAGIC, position):  # streams may be concatenated
            position += _XERIAL_HEADER
            continue
        length = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if length <= 0 or position + length > end:
            raise CodecError(f"snappy block of {length} bytes does not fit the {end - position} bytes that are left")
        blocks.append(_raw_snappy(data[position : position + length]))
        position += length
        unfolded += len(blocks[-1])
        if unfolded > MOST_BYTES:
            raise CodecError(_TOO_MUCH)
    return b"".join(blocks)


def _bounded(unfold: Callable[[bytes, bytearray], int]) -> Callable[[bytes], bytes]:
    """Decompresses into this thread's one buffer, of which only the used part takes memory."""

    def function(data: bytes) -> bytes:
        buffer = getattr(_buffers, "buffer", None)
        if buffer is None:
            buffer = _buffers.buffer = bytearray(MOST_BYTES)
        try:
            return bytes(memoryview(buffer)[: unfold(data, buffer)])
        except cramjam.DecompressionError as error:
            if "write whole buffer" in str(error):
                raise CodecError(_TOO_MUCH) from error
            raise

    return function


_DECOMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    1: _bounded(cramjam.gzip.decompress_into),
    2: _snappy,
    3: _bounded(cramjam.lz4.decompress_into),
    4: _bounded(cramjam.zstd.decompress_into),
}


def codec_name(codec: int) -> str:
    """Name of a codec number in column `compression`; `codec_n` when Kafka defines none."""
    return CODEC_NAMES.get(codec, f"codec_{codec}")


def decompress(codec: int, data: bytes) -> bytes:
    """The records part of a batch, decompressed. Raises CodecError when the bytes do not fit the codec."""
    function = _DECOMPRESS.get(codec)
    if function is None:
        raise CodecError(f"compression codec {codec} is not one of {', '.join(CODEC_NAMES.values())}")
    try:
        return function(data)
    except CodecError:
        raise
    except (cramjam.DecompressionError, ValueError, OSError) as error:
        raise CodecError(f"{codec_name(codec)}: {error}") from error
