"""Compressed batches: every codec, and bombs that would fill memory."""

from __future__ import annotations

import time

import cramjam
import pytest

from harness.evidence.codecs import CODEC_NAMES, MOST_BYTES, CodecError, decompress

pytestmark = pytest.mark.unit
PLAIN = b"all records of one batch, again and again " * 5000


def xerial(*blocks: bytes) -> bytes:
    header = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return header + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def packed(codec: int, data: bytes) -> bytes:
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(data))
    return bytes(getattr(cramjam, CODEC_NAMES[codec]).compress(data))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_decompressed(codec: int) -> None:
    assert decompress(codec, packed(codec, PLAIN)) == PLAIN
    assert decompress(codec, packed(codec, b"x")) == b"x"
    with pytest.raises(CodecError):
        decompress(codec, packed(codec, PLAIN)[: len(packed(codec, PLAIN)) // 2])


def test_snappy_in_javas_framing() -> None:
    block = packed(2, PLAIN)
    assert decompress(2, xerial(block, block)) == PLAIN * 2


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_named(codec: int) -> None:
    bomb = packed(codec, bytes(MOST_BYTES + 1))
    began = time.monotonic()
    with pytest.raises(CodecError, match="decompresses to more than 256 MiB"):
        decompress(codec, bomb)
    assert time.monotonic() - began < 30


def test_a_snappy_bomb_of_many_blocks_is_named() -> None:
    block = packed(2, bytes(MOST_BYTES // 4))
    with pytest.raises(CodecError, match="decompresses to more than 256 MiB"):
        decompress(2, xerial(*[block] * 6))
