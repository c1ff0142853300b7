"""Mined headers, networks on which mining is cheap, and the header files of the vectors.

A header is 80 `bytes`, a chain is the concatenation of its headers; `hashes` gives their block hashes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from spvfilter.chain import Fork, HeaderChain, HeaderSync, Tip, packed
from spvfilter.chain.packed import PackedHeaders
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.protocol import MAX_HEADERS
from support.blocks.build import EASY_BITS, sha256d
from support.vectors import vector_path

NOW = 2_000_000_000  # a clock ahead of every chain here
GENESIS_TIME = 1_296_688_602  # regtest's

# The rules of the real networks at regtest's difficulty. Their limit allows any hash whose last byte is below 0x80.
EASY_MAINNET = replace(REGTEST, name="mainnet's rules", retargets=True, min_difficulty_blocks=False)
EASY_TESTNET3 = replace(REGTEST, name="testnet3's rules", retargets=True)
EASY_TESTNET4 = replace(REGTEST, name="testnet4's rules", retargets=True, bip94=True)
OPEN_MAINNET = replace(MAINNET, min_chain_work=0)  # for chains of its first years


def wide_target(bits: int) -> int:
    return (bits & 0x7FFFFF) << 8 * ((bits >> 24) - 3)


def mine(
    previous: bytes,
    time: int,
    bits: int = EASY_BITS,
    *,
    version: int = 4,
    root: bytes = bytes(32),
    limit: int | None = None,
) -> bytes:
    """A header after `previous` whose hash meets its bits, or `limit` instead."""
    head = struct.pack("<i32s32sII", version, previous, root, time, bits)
    goal, sha256, nonce = wide_target(bits) if limit is None else limit, hashlib.sha256, 0
    while True:
        raw = head + nonce.to_bytes(4, "little")
        if int.from_bytes(sha256(sha256(raw).digest()).digest(), "little") <= goal:
            return raw
        nonce += 1


def unproven(previous: bytes, time: int, bits: int = EASY_BITS) -> bytes:
    """A header after `previous` whose hash does not meet its bits."""
    nonce = 0
    while int.from_bytes(
        sha256d(raw := struct.pack("<i32s32sIII", 4, previous, bytes(32), time, bits, nonce)), "little"
    ) <= wide_target(bits):
        nonce += 1
    return raw


def grow(previous: bytes, times: Iterable[int], bits: int = EASY_BITS, root: bytes = bytes(32)) -> bytes:
    """Consecutive headers with these times and the same bits."""
    headers = []
    for time in times:
        headers.append(mine(previous, time, bits, root=root))
        previous = sha256d(headers[-1])
    return b"".join(headers)


def regular(chain: HeaderChain, count: int, *, height: int | None = None, branch: int = 0) -> bytes:
    """Headers ten minutes apart after a height of the best chain, at regtest's difficulty. `branch` makes branches
    differ.
    """
    height = chain.height if height is None else height
    time = chain.header_at(height).time
    return grow(
        chain.hash_at(height), range(time + 600, time + 600 * count + 1, 600), root=branch.to_bytes(32, "little")
    )


def obey(tip: Tip, times: Iterable[int]) -> bytes:
    """Consecutive headers with these times and the bits that the rules require; `tip` advances to the last one."""
    headers = []
    for time in times:
        raw = mine(tip.hash, time, tip.next_bits(time))
        tip.advance(raw, sha256d(raw), NOW)
        headers.append(raw)
    return b"".join(headers)


def hashes(headers: bytes) -> bytes:
    return b"".join(sha256d(raw) for raw in split(headers))


def split(headers: bytes) -> list[bytes]:
    return [headers[at : at + 80] for at in range(0, len(headers), 80)]


def tip_hash(headers: bytes) -> bytes:
    return sha256d(headers[-80:])


def tip_of(network: Network, height: int, times: list[int], bits: int, period: tuple[int, int] | None = None) -> Tip:
    """The tip of a made-up chain. `period` is the bits and time of the first header of its period."""
    period_bits, period_time = period or (bits, times[0])
    return Tip(
        network=network,
        height=height,
        hash=bytes(32),
        work=1 << 40,
        bits=bits,
        period_bits=period_bits,
        period_time=period_time,
        times=list(times),
    )


def judge(tip: Tip, time: int, bits: int, *, now: int = NOW, version: int = 4) -> Tip:
    """Mine one header after a tip, and advance a copy of the tip."""
    raw = mine(tip.hash, time, bits, version=version)
    above = tip.copy()
    above.advance(raw, sha256d(raw), now)
    return above


@cache
def header_file(name: str) -> bytes:
    """A binary file of 06_headers."""
    return vector_path(f"06_headers/{name}").read_bytes()


def fork_height(chain: HeaderChain, locator: Sequence[bytes]) -> int:
    """The height of the first locator hash that is in the best chain; 0 if there is none."""
    heights = (chain.height_of(block_hash) for block_hash in locator)
    return next((height for height in heights if height is not None), 0)


def headers_after(chain: HeaderChain, locator: Sequence[bytes]) -> bytes:
    """A peer's response to getheaders: the headers after the fork, at most 2,000."""
    return chain.headers(fork_height(chain, locator) + 1, MAX_HEADERS)


def chain_of(count: int, network: Network = REGTEST) -> HeaderChain:
    chain = HeaderChain(network)
    if count:
        chain.accept(regular(chain, count), NOW)
    return chain


def state(chain: HeaderChain) -> tuple[int, bytes, int, bytes]:
    return chain.height, chain.tip_hash, chain.work, chain.headers(0, chain.height + 1)


def forks_of(chain: HeaderChain) -> list[Fork]:
    """The kept branches beside the best chain."""
    return list(chain._forks)


def commitment_offset(sync: HeaderSync) -> int:
    """The height of the first header to which a first pass commits."""
    return sync._offset


def commitments_of(sync: HeaderSync) -> bytes:
    """One byte for each commitment of the first pass."""
    assert sync._passes is not None
    return bytes(sync._passes.commitments)


def waiting_headers(sync: HeaderSync) -> bytes:
    """The headers of the second pass that the chain does not have yet."""
    return bytes(sync._passes.headers) if sync._passes else b""


def indexes_of(chain: PackedHeaders) -> Sequence[bytes]:
    """The indexes by hash of a chain."""
    return chain._indexes


def shared_parts(chain: PackedHeaders) -> tuple[list[int], list[int]]:
    """The identities of the segments and of the large indexes of a chain, which chains may share."""
    return [id(each) for each in chain._segments], [id(each) for each in chain._large]


def shared_segments() -> dict[bytes, int]:
    """The identity of each segment that a chain of the process has, by the hash of its last header."""
    return {name: id(each) for name, each in packed._SEGMENTS.items()}
