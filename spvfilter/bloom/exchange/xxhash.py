"""xxHash64, which Parquet's filters use. Source: the xxHash specification (xxhash_spec.md), version 0.1.1, "XXH64"."""

from __future__ import annotations

import struct

_M64 = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def xxhash64(data: bytes, seed: int = 0) -> int:
    """The 64-bit xxHash of any bytes with a u64 seed."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2 & _M64, seed + _P2 & _M64, seed, seed - _P1 & _M64]
        while at + 32 <= size:
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        hashed = sum(_left(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
        for lane in lanes:
            hashed = (hashed ^ _round(0, lane)) * _P1 + _P4 & _M64
    else:
        hashed = seed + _P5 & _M64
    hashed = hashed + size & _M64
    while at + 8 <= size:
        hashed = _left(hashed ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4 & _M64
        at += 8
    if at + 4 <= size:
        hashed = _left(hashed ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _M64, 23) * _P2 + _P3 & _M64
        at += 4
    for byte in data[at:]:
        hashed = _left(hashed ^ byte * _P5 & _M64, 11) * _P1 & _M64
    hashed = (hashed ^ hashed >> 33) * _P2 & _M64
    hashed = (hashed ^ hashed >> 29) * _P3 & _M64
    return hashed ^ hashed >> 32


def _round(lane: int, word: int) -> int:
    return _left(lane + word * _P2 & _M64, 31) * _P1 & _M64


def _left(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _M64
